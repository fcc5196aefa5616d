"""Following a journal: every whole line once, whatever happens to the file meanwhile."""

import pytest
from support.events import began, ended, run_started, turn
from support.watched import Journal

from runner.events import RunEnded, RunStarted, TrajectoryStarted
from runner.views.watch.tail import Damage, JournalPresence, JournalTail, Located, Look


def events(look: Look) -> list[type]:
    return [type(one.event) for one in look.found if isinstance(one, Located)]


def test_a_journal_that_does_not_exist_yet_is_waited_for(journal: Journal) -> None:
    tail = JournalTail(journal.path)
    assert tail.look().presence is JournalPresence.ABSENT

    journal.write(run_started())

    assert events(tail.look()) == [RunStarted]


def test_only_what_is_new_is_read(journal: Journal) -> None:
    tail = JournalTail(journal.path)
    journal.write(run_started(), began())
    assert events(tail.look()) == [RunStarted, TrajectoryStarted]

    journal.write(ended())

    look = tail.look()
    assert events(look) == [RunEnded]
    assert look.read_bytes == look.size_bytes == journal.path.stat().st_size


def test_offsets_and_lines_name_where_an_event_stands(journal: Journal) -> None:
    tail = JournalTail(journal.path, chunk_bytes=700)
    journal.write(run_started(), began(), turn("one"), turn("two", number=1))
    whole = journal.path.read_bytes()

    found: list[Located | Damage] = []
    while (look := tail.look()).found:
        found += look.found

    assert [one.line for one in found] == [1, 2, 3, 4]
    for one in found:
        assert isinstance(one, Located)
        line = whole[one.offset :].split(b"\n")[0]
        assert f'"type":"{one.event.type}"'.encode() in line


def test_a_torn_last_line_waits_for_its_end(journal: Journal) -> None:
    tail = JournalTail(journal.path)
    line = journal.line(run_started())
    journal.write_bytes(line[:100])
    assert (tail.look().found, tail.look().torn_bytes) == ((), 100)

    journal.write_bytes(line[100:])

    assert events(tail.look()) == [RunStarted]


def test_a_torn_line_that_a_continued_run_cut_off_is_forgotten(journal: Journal) -> None:
    tail = JournalTail(journal.path)
    journal.write(run_started())
    kept = journal.path.stat().st_size
    journal.write_bytes(journal.line(began())[:60])
    assert events(tail.look()) == [RunStarted]

    with journal.path.open("r+b") as file:
        file.truncate(kept)
    journal.write(began("p0", attempt=2), ended())

    look = tail.look()
    assert not look.replaced
    assert events(look) == [TrajectoryStarted, RunEnded]


@pytest.mark.parametrize(
    "line",
    [
        b"{}\n",
        b"not json\n",
        b'"type"\n',
        b'{"type":"unheard_of","at":1}\n',
        b"\xff\xfe\n",
        b"\n",
        b'{"at":' + b"9" * 5000 + b',"type":"run_ended","reason":"complete"}\n',
        b"[" * 100_000 + b"\n",
        b'{"type":"run_ended","reason":"complete","more":1}\n',
        b'{"type":"run_ended"\r,"reason":"complete","x":\n',
    ],
)
def test_a_damaged_line_is_told_and_what_follows_is_read(journal: Journal, line: bytes) -> None:
    tail = JournalTail(journal.path)
    journal.write(run_started())
    journal.write_bytes(line)
    journal.write(ended())

    first, damage, last = tail.look().found

    assert isinstance(first, Located)
    assert isinstance(damage, Damage)
    assert damage.line == 2
    assert isinstance(last, Located)
    assert last.line == 3


def test_a_journal_cut_short_is_read_anew(journal: Journal) -> None:
    tail = JournalTail(journal.path)
    journal.write(run_started(), began(), ended())
    tail.look()

    journal.path.write_bytes(journal.line(run_started("other")))

    look = tail.look()
    assert look.replaced
    assert events(look) == [RunStarted]


def test_another_journal_in_its_place_is_read_anew(journal: Journal) -> None:
    tail = JournalTail(journal.path)
    journal.write(run_started())
    tail.look()

    other = Journal(journal.path.with_name("other"))
    other.write(run_started("x", run_id="another"), began("x"), ended())
    other.path.replace(journal.path)

    look = tail.look()
    assert look.replaced
    assert len(look.found) == 3


def test_a_journal_rewritten_in_place_is_read_anew_however_long_it_is(journal: Journal) -> None:
    tail = JournalTail(journal.path)
    journal.write(run_started())
    tail.look()

    with journal.path.open("r+b") as file:
        file.write(journal.line(run_started(run_id="another")) + journal.line(began()) * 3)

    look = tail.look()
    assert look.replaced
    assert len(look.found) == 4


def test_a_journal_that_vanishes_is_absent_and_may_come_back(journal: Journal) -> None:
    tail = JournalTail(journal.path)
    journal.write(run_started())
    tail.look()
    content = journal.path.read_bytes()

    journal.path.unlink()
    assert tail.look().presence is JournalPresence.ABSENT

    journal.path.with_name("new").write_bytes(content + journal.line(ended()))
    journal.path.with_name("new").replace(journal.path)
    assert events(tail.look())[-1] is RunEnded


def test_a_directory_in_its_place_is_told(journal: Journal) -> None:
    journal.path.mkdir()

    look = JournalTail(journal.path).look()

    assert look.presence is JournalPresence.UNREADABLE
    assert look.problem == "Is a directory"


def test_a_line_longer_than_a_chunk_is_read_whole(journal: Journal) -> None:
    tail = JournalTail(journal.path, chunk_bytes=1000)
    journal.write(run_started(), began(), turn("x" * 20_000), ended())

    found: list[Located | Damage] = []
    while (look := tail.look()).found:
        found += look.found

    assert len(found) == 4


def test_a_line_too_long_to_be_one_is_passed_over(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("runner.views.watch.tail.LONGEST_LINE_BYTES", 5000)
    tail = JournalTail(journal.path, chunk_bytes=1000)
    journal.write(run_started())
    journal.write_bytes(b"x" * 20_000)
    assert len(tail.look().found) == 1
    assert tail.look().found == ()

    journal.write_bytes(b"\n")
    journal.write(ended())

    damage = tail.look().found[0]
    assert isinstance(damage, Damage)
    assert (damage.line, damage.reason) == (2, "longer than 5000 bytes")
    assert events(tail.look()) == [RunEnded]
