"""The demo's content: every answer is recomputed here, and the script and the pack hold together.

The recomputations use other methods than the scripted commands where there is a second one, and the
standard library only.
"""

import json
import math
from collections import Counter
from collections.abc import Callable, Iterator
from decimal import Decimal
from fractions import Fraction
from functools import cache
from itertools import accumulate, combinations, pairwise, permutations, product
from pathlib import Path
from typing import Any

import pytest

from runner.protocol.action import bash_command, is_blocked_command, parse_turn
from runner.protocol.prompt import ProtocolPack
from runner.protocol.score import Termination, score_trajectory

ROOT = Path(__file__).resolve().parents[2]
DATASETS = ROOT / "datasets"
PACK = ROOT / "runner" / "data" / "protocols" / "demo.json"

SAMPLES = (0, 1)
COMPLETION_LIMIT_BYTES = 1_500
CONTEXT_TOKENS = 12_000
"""The demo's context; its tokens are UTF-8 bytes of the conversation as ChatML."""
TURN_TOKENS = 1_500
OBSERVATION_LIMIT_CHARS = 2_000
MAX_TURNS = 6
TERMINATIONS = {"final_answer", "max_turns", "context_length_exceeded", "request_error"}
PACK_KEYS = {
    "name",
    "licence",
    "system_prompt",
    "user_prompt_template",
    "observation_template",
    "format_check_name",
    "answer_before_bash_warning",
    "no_action_warning",
    "blocked_command_observation",
    "unknown_action_template",
    "empty_command_observation",
    "stop",
}
RELAXED = {"demo_006_pebble-heap:1", "demo_007_beetle-walk:0", "demo_007_beetle-walk:1"}
"""Trajectories whose first action is deliberately no valid JSON."""


def read_lines(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (DATASETS / name).read_text(encoding="utf-8").splitlines()]


PROBLEMS = read_lines("demo.jsonl")
SCRIPT = {f"{line['id']}:{line['sample']}": line["completions"] for line in read_lines("demo_script.jsonl")}
EXPECTED = json.loads((DATASETS / "demo_expected.json").read_text(encoding="utf-8"))


# Independent solutions


def exactly_one() -> int:
    """Inclusion and exclusion: all three pairwise least common multiples are 30."""
    singles = sum(999 // d for d in (6, 10, 15))
    return singles - 2 * 3 * (999 // 30) + 3 * (999 // 30)


def tokens() -> int:
    ways = [1] + [0] * 100
    for value in (5, 8, 13):
        for total in range(value, 101):
            ways[total] += ways[total - value]
    return ways[100]


def fence_panels() -> int:
    """Enumerate sums; beyond 11 * 14 everything can be built from two of the lengths."""
    limit = 11 * 14
    sums = {11 * a + 14 * b + 20 * c for a in range(15) for b in range(12) for c in range(9)}
    return max(n for n in range(limit) if n not in sums)


def three_dice() -> Fraction:
    return Fraction(sum(2 * max(dice) == sum(dice) for dice in product(range(1, 7), repeat=3)), 6**3)


def lattice_triangle() -> int:
    """Test each point by its cross products with the edges (the corners run counter-clockwise)."""
    corners = [(0, 0), (35, 14), (10, 50)]
    edges = list(zip(corners, corners[1:] + corners[:1], strict=True))

    def inside(x: int, y: int) -> bool:
        return all((c - a) * (y - b) - (d - b) * (x - a) > 0 for (a, b), (c, d) in edges)

    return sum(inside(x, y) for x in range(36) for y in range(51))


def pebble_heap() -> int:
    @cache
    def wins(size: int) -> bool:
        return any(size >= taken and not wins(size - taken) for taken in (1, 4, 6))

    return sum(not wins(size) for size in range(1, 201))


def beetle_walk() -> int:
    """Go through the walks one by one, each given by its eight steps to the right."""
    count = 0
    for rights in combinations(range(16), 8):
        x_after = list(accumulate(step in rights for step in range(16)))
        count += x_after[5] != 3 and x_after[9] != 5
    return count


def power_sum() -> int:
    """Trace of the fifth power of the companion matrix, in whole numbers."""
    companion = [[0, 0, 7], [1, 0, -5], [0, 1, 4]]
    power = companion
    for _ in range(4):
        power = [
            [sum(a * b for a, b in zip(row, col, strict=True)) for col in zip(*companion, strict=True)]
            for row in power
        ]
    return sum(power[i][i] for i in range(3))


def power_towers() -> int:
    """Iterate the cubings and squarings themselves."""
    left, right = 2, 3
    for _ in range(20):
        left, right = left**3 % 1009, right**2 % 1009
    return (left + right) % 1009


def paving() -> int:
    """Lay pieces from the left: an upright slab, two lying ones, or a big slab unless one precedes it."""

    def lay(columns: int, after_big: bool) -> int:
        if columns == 0:
            return 1
        ways = lay(columns - 1, False)
        if columns >= 2:
            ways += lay(columns - 2, False) + (0 if after_big else lay(columns - 2, True))
        return ways

    return lay(14, False)


def bead_ring() -> int:
    """Burnside: a rotation by k fixes as many colourings as a cycle of length gcd(k, 8) has."""

    def proper(length: int) -> int:
        return int(2**length + 2 * (-1) ** length)

    return sum(proper(math.gcd(k, 8)) for k in range(8)) // 8


def multiple_of_seven() -> int:
    """Solve E = 1 + 5/6 E for a residue other than 0, where one result in six ends it; one throw before."""
    for residue in range(1, 7):
        if sum((residue + die) % 7 == 0 for die in range(1, 7)) != 1:
            raise ValueError(residue)
    return int(1 + 1 / (1 - Fraction(5, 6)))


def whole_area() -> int:
    """With a = y + z and so on, the area of a whole-area triangle is the root of xyz(x + y + z)."""
    count = 0
    for x in range(1, 50):
        for y in range(1, min(x, 50 - x) + 1):
            for z in range(1, min(y, 50 - x - y) + 1):
                square = x * y * z * (x + y + z)
                count += math.isqrt(square) ** 2 == square
    return count


def lock_codes() -> int:
    @cache
    def codes(places: int, total: int) -> int:
        """Count by inclusion and exclusion: a last run of equal digits has the sign of its merged places."""
        if places == 0:
            return int(total == 0)
        return sum(
            (-1) ** (run - 1) * codes(places - run, total - run * digit)
            for run in range(1, places + 1)
            for digit in range(10)
            if run * digit <= total
        )

    return codes(8, 30)


def norm_form() -> int:
    """Complete the square: 4 * 1729 = (2x - y)^2 + 3y^2."""
    count = 0
    for y in range(-49, 50):
        rest = 4 * 1729 - 3 * y * y
        if rest < 0 or math.isqrt(rest) ** 2 != rest:
            continue
        count += sum((root + y) % 2 == 0 for root in {math.isqrt(rest), -math.isqrt(rest)})
    return count


def bottle_row() -> int:
    """Play the game out over sorted rows of bottles, without the theory of Grundy numbers."""

    def openings(rows: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
        for index, row in enumerate(rows):
            others = rows[:index] + rows[index + 1 :]
            for width in (1, 2):
                for left in range(row - width + 1):
                    parts = (left, row - width - left)
                    yield tuple(sorted(others + tuple(part for part in parts if part)))

    @cache
    def wins(rows: tuple[int, ...]) -> bool:
        return any(not wins(after) for after in openings(rows))

    return sum(not wins(after) for after in openings((15,)))


def near_places() -> int:
    return sum(all(1 <= abs(new - old) <= 2 for old, new in enumerate(p)) for p in permutations(range(8)))


def sequence_divisors() -> int:
    values = [1, 3]
    while len(values) < 1_000:
        values.append(values[-1] + values[-2])
    return sum(value % 29 == 0 for value in values)


def three_kings() -> int:
    """Count by the number of attacking pairs: all triples, minus those with at least one."""
    squares = list(product(range(5), repeat=2))
    near = {(p, q) for p, q in product(squares, repeat=2) if p != q and math.dist(p, q) < 2}
    attacked = sum(any(pair in near for pair in combinations(three, 2)) for three in combinations(squares, 3))
    return math.comb(25, 3) - attacked


def box_walk() -> str:
    squares = [(a + b) ** 2 + c**2 for a, b, c in permutations((3, 4, 5))]
    return f"\\sqrt{{{min(squares)}}}"


SOLUTIONS: dict[str, Callable[[], object]] = {
    "demo_001_exactly-one": exactly_one,
    "demo_002_tokens": tokens,
    "demo_003_fence-panels": fence_panels,
    "demo_004_three-dice": three_dice,
    "demo_005_lattice-triangle": lattice_triangle,
    "demo_006_pebble-heap": pebble_heap,
    "demo_007_beetle-walk": beetle_walk,
    "demo_008_power-sum": power_sum,
    "demo_009_power-towers": power_towers,
    "demo_010_paving": paving,
    "demo_011_bead-ring": bead_ring,
    "demo_012_multiple-of-seven": multiple_of_seven,
    "demo_013_whole-area": whole_area,
    "demo_014_lock-codes": lock_codes,
    "demo_015_norm-form": norm_form,
    "demo_016_bottle-row": bottle_row,
    "demo_017_near-places": near_places,
    "demo_018_sequence-divisors": sequence_divisors,
    "demo_019_three-kings": three_kings,
    "demo_020_box-walk": box_walk,
}


# Problems


@pytest.mark.parametrize("problem", PROBLEMS, ids=[problem["id"] for problem in PROBLEMS])
def test_answer_is_what_an_independent_computation_gives(problem: dict[str, Any]) -> None:
    assert str(SOLUTIONS[problem["id"]]()) == problem["answer"]


def test_problem_ids_are_unique_and_numbered_in_file_order() -> None:
    ids = [problem["id"] for problem in PROBLEMS]
    assert len(set(ids)) == len(ids)
    assert [identifier[:8] for identifier in ids] == [f"demo_{n:03d}" for n in range(1, len(ids) + 1)]


def test_every_problem_has_the_same_fields_all_filled() -> None:
    for problem in PROBLEMS:
        assert list(problem) == ["id", "question", "answer", "source", "topic", "difficulty"]
        assert all(isinstance(value, str) and value for value in problem.values())
        assert problem["source"] == "recount-demo"
        assert problem["difficulty"] in {"easy", "medium", "hard"}


# Script


def test_both_samples_of_every_problem_are_scripted_once_and_expected_once() -> None:
    keys = [f"{problem['id']}:{sample}" for problem in PROBLEMS for sample in SAMPLES]
    lines = read_lines("demo_script.jsonl")
    assert [f"{line['id']}:{line['sample']}" for line in lines] == keys
    assert list(EXPECTED) == keys
    assert {line["dataset"] for line in lines} == {"demo"}


def test_every_completion_fits_into_a_turn() -> None:
    sizes = [len(text.encode()) for texts in SCRIPT.values() for text in texts if text is not None]
    assert max(sizes) < COMPLETION_LIMIT_BYTES


def test_no_completion_holds_the_stop_string() -> None:
    assert not [key for key, texts in SCRIPT.items() if any("Observation:" in (text or "") for text in texts)]


def test_actions_are_json_except_where_the_relaxed_reading_is_shown() -> None:
    undecodable = set()
    for key, texts in SCRIPT.items():
        for text in texts:
            _, marker, block = (text or "").rpartition("Action:\n")
            if marker and "</think>" not in block:
                try:
                    action = json.loads(block)
                except json.JSONDecodeError:
                    undecodable.add(key)
                else:
                    assert set(action) == {"name", "arguments"}
                    assert set(action["arguments"]) == {"command"}
    assert undecodable == RELAXED


def test_a_script_is_as_long_as_its_expected_turns_and_refusals() -> None:
    for key, expected in EXPECTED.items():
        assert len(SCRIPT[key]) == expected["turns"] + SCRIPT[key].count(None), key
        assert expected["turns"] <= MAX_TURNS


def test_refusals_stand_alone_where_recovered_and_in_a_pair_where_fatal() -> None:
    for key, texts in SCRIPT.items():
        fatal = texts[-2:] == [None, None]
        assert fatal == (EXPECTED[key]["termination"] == "request_error"), key
        pairs = sum(a is None and b is None for a, b in pairwise(texts))
        assert pairs == int(fatal), key


def test_the_long_conversation_outgrows_the_context_after_its_last_observation() -> None:
    pack = json.loads(PACK.read_text(encoding="utf-8"))
    questions = {problem["id"]: problem["question"] for problem in PROBLEMS}
    long = [key for key, value in EXPECTED.items() if value["termination"] == "context_length_exceeded"]
    assert long == ["demo_010_paving:1"]
    user = pack["user_prompt_template"].replace("{question}", questions["demo_010_paving"])
    texts = [pack["system_prompt"], user, *SCRIPT[long[0]]]
    base_bytes = sum(len(text.encode()) for text in texts)
    before_last_bytes = base_bytes - len(SCRIPT[long[0]][-1].encode())
    observations = len(SCRIPT[long[0]])
    assert base_bytes + observations * OBSERVATION_LIMIT_CHARS + TURN_TOKENS > CONTEXT_TOKENS
    # An observation may have some wide characters, its two messages and the truncation some wrapping.
    widest_bytes = before_last_bytes + (observations - 1) * (OBSERVATION_LIMIT_CHARS * 11 // 10 + 100)
    assert widest_bytes + TURN_TOKENS <= CONTEXT_TOKENS


# Expectations


def test_terminations_and_scores_are_of_the_closed_sets() -> None:
    assert {value["termination"] for value in EXPECTED.values()} == TERMINATIONS
    assert {value["score"] for value in EXPECTED.values()} == {0.0, 1.0}


def test_scores_differ_between_samples_and_most_trajectories_are_right() -> None:
    by_sample = Counter[str]()
    for key, value in EXPECTED.items():
        by_sample[key[-1]] += int(value["score"])
    assert by_sample == {"0": 16, "1": 13}


def bash_commands(key: str) -> list[str]:
    """List the commands of a trajectory that are not blank."""
    actions = [parse_turn(text).action for text in SCRIPT[key] if text is not None]
    commands = [bash_command(action) for action in actions if action is not None and action.name == "bash"]
    return [command for command in commands if command.strip()]


def test_protocol_scores_every_last_completion_as_expected() -> None:
    answers = {problem["id"]: problem["answer"] for problem in PROBLEMS}
    for key, value in EXPECTED.items():
        last = [text for text in SCRIPT[key] if text is not None][-1]
        score = score_trajectory(
            last,
            answers[key[:-2]],
            used_bash=bool(bash_commands(key)),
            termination=Termination(value["termination"]),
        )
        assert score.value == value["score"], key


def test_as_many_commands_run_as_are_expected_and_one_is_blocked() -> None:
    blocked = []
    for key, value in EXPECTED.items():
        commands = bash_commands(key)
        blocked += [key for command in commands if is_blocked_command(command)]
        assert sum(not is_blocked_command(command) for command in commands) == value["commands"], key
    assert blocked == ["demo_009_power-towers:0"]


def test_only_the_last_turn_of_a_final_answer_ends_a_trajectory() -> None:
    for key, value in EXPECTED.items():
        used_bash = False
        ends = []
        for text in SCRIPT[key]:
            turn = parse_turn(text or "")
            ends.append(used_bash and turn.action is None and turn.final_answer is not None)
            used_bash |= turn.action is not None and turn.action.name == "bash"
        assert not any(ends[:-1]), key
        assert ends[-1] == (value["termination"] == "final_answer"), key


@pytest.mark.parametrize(
    "phrase",
    [
        "right, one command",
        "wrong reasoning",
        "overturned by computation",
        "answer before any command",
        "neither action nor answer",
        "unknown name",
        "single quotes",
        "raw line breaks",
        "cut short",
        "empty command",
        "blocked command",
        "time-out",
        "flood of output",
        "loses its middle",
        "out of memory",
        "process limit",
        "no network",
        "ModuleNotFoundError",
        "traceback",
        "two turns later",
        "decoy",
        "recovers on the second try",
        "refuses a turn twice",
        "turns run out",
        "context is exceeded",
        "never a command",
        "exact scorer gives 0",
    ],
)
def test_every_way_to_end_and_to_go_wrong_is_shown(phrase: str) -> None:
    assert any(phrase in value["shows"] for value in EXPECTED.values())


# Protocol pack


def test_pack_has_every_sentence_and_placeholder() -> None:
    pack = json.loads(PACK.read_text(encoding="utf-8"))
    assert set(pack) == PACK_KEYS
    assert (pack["name"], pack["licence"]) == ("demo-react", "MIT")
    assert pack["user_prompt_template"].count("{question}") == 1
    assert pack["unknown_action_template"].count("{name}") == 1
    assert pack["observation_template"] == "Observation from {name}:\n{text}"
    assert pack["stop"] == ["Observation:"]
    assert all(value for value in pack.values())
    assert ProtocolPack.from_mapping(pack, "demo.json").system_prompt == pack["system_prompt"]


def test_worked_example_of_the_pack_is_right() -> None:
    system_prompt = json.loads(PACK.read_text(encoding="utf-8"))["system_prompt"]
    count = sum(n % 3 == 0 and n % 5 > 0 for n in range(1, 101))
    assert f"Shell: {count}\n" in system_prompt
    assert system_prompt.endswith(f"Final answer: \\boxed{{{count}}}")


def test_decimal_answer_that_is_scored_wrong_is_near_but_not_equal() -> None:
    given = Decimal(SCRIPT["demo_020_box-walk:0"][-1].rpartition("{")[2].rstrip("}"))
    assert 0 < abs(given - Decimal(74).sqrt()) < Decimal("0.001")
