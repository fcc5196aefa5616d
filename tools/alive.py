"""What vulture cannot see used, and who uses it. Read by vulture alone; a line here has been looked at."""

from typing import Any

_: Any = None

# Called by the interpreter or by a library, by name.
_.__getattr__  # runner/__init__: the Python interface, imported when it is asked for
_.capture_signals  # uvicorn's server
_.should_exit  # uvicorn's server
_.copy_to_clipboard  # Textual's app
_._clipboard  # Textual's app
_.ENABLE_COMMAND_PALETTE  # Textual's app
_.ALLOW_SELECT  # Textual's app
_._clock_resolution  # asyncio's event loop
_.f_trace_lines  # a frame's
_.converter  # logging's formatter
_.globals  # Jinja's environment
_.create_system  # zipfile's
_.external_attr  # zipfile's
_.gname  # tarfile's
_.uname  # tarfile's
_.mtime  # tarfile's
_.quiet  # Rich's console
_.caption  # Rich's table
_.caption_justify  # Rich's table
_._last_output  # Inspect AI's task state
_.validate_prereqs  # Inspect AI's provider

# vLLM calls and reads these.
_.engine_index
_.engine_idx
_.mm_cache_stats
_.log_engine_initialized
_.expert_weights
_.moe_layers
_.num_moe_layers

# Ray's worker prints by this.
_.print_to_stdstream

# Read by the report's templates.
_.p90
_.sign
_.left_out_chars
_.without_turns
_.stretch
_.view_box

# Written to files and sent over the wire with their whole record.
_.dirty
_.policy_sha256
_.infrastructure_failures
_.waited_p50_s
_.overhead_p50_s
_.runner_rss_mib
_.broker_rss_mib
_.runner_fds
_.broker_fds
_.runner_threads
_.broker_threads
_.daemon_ping_ms
_.daemon_list_ms
_.daemon_start_ms
_.fingerprint  # a node's facts: labels of Ray's, by dataclasses.fields
_.agent
_.architecture
_.turns_a_trajectory

# Values of a closed set that a manifest or a command names by their text.
_.CHAT_TEMPLATE
_.GENERATION_CONFIG
_.LINEAGE
_.CARD_RESULTS

# The Python interface (docs/python.md).
_.unfinished_because
_.sample_means

# What tests hold the rest against.
_.reduce_events  # the reducer over a list of events
_.rows_drawn  # how much a viewer painted
_.updates  # a lineage's own count, against the published one
_.verdict_word

# Kept for the outcome of a fetch as a whole.
