"""The reply grammar: every spelling, every repair, everything that is never a command (loop: 3; loop: 7, 18 to 25)."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from hmp_node.agent import blocks, grammar, repairs
from hmp_node.agent.aliases import suggest
from hmp_node.agent.grammar import Limits, Parsed, args_hash, is_dangerous, parse

LIMITS = Limits(reply_bytes=262_144, commands=32, depth=32)
KNOWN = frozenset(
    {
        "concept.add", "cycle.idle", "diary.add", "diary.delete", "diary.read", "file.write", "note.add", "note.list",
        "note.send", "process.start", "shell.run", "table.drop", "thought.add", "thought.list",
    }
)  # fmt: skip
CASES = [
    json.loads(line)
    for line in (Path(__file__).parents[1] / "fixtures" / "injections.jsonl").read_text("utf-8").splitlines()
]
ADD = '{"type": "diary.add", "args": {"text": "Снег"}}'
NOTE = '{"type": "note.add", "args": {"text": "b"}}'
SHELL = '{"type": "shell", "args": {"argv": ["ls"]}}'
OPENS = ["# Команды:", "## Команди", "### commands:", "#COMMANDS", "# Comandos:  ", "  # КОМАНДЫ"]
CLOSES = ["# Конец команд", "## Кінець команд", "# END OF COMMANDS", "### Fin de comandos", "# End of commands:"]


def read(reply: str, **more: Any) -> Parsed:
    return parse(reply, tick=7, known=KNOWN, **{"limits": LIMITS, **more})


def block(body: str, opening: str = "# Commands:", close: str = "# End of commands") -> str:
    return f"{opening}\n{body}\n{close}\n"


def meant(parsed: Parsed) -> list[tuple[str, dict[str, Any]]]:
    return [(command.type, command.args) for command in parsed.commands]


def codes(parsed: Parsed) -> list[str]:
    return [problem.code for problem in parsed.problems]


SNOW: list[tuple[str, dict[str, Any]]] = [("diary.add", {"text": "Снег"})]
BOTH = [*SNOW, ("note.add", {"text": "b"})]


# --- markers --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("opening", OPENS)
@pytest.mark.parametrize("close", CLOSES)
def test_18_markers_of_every_language_parse_alike(opening: str, close: str) -> None:
    parsed = read(f"Думаю.\n{block(ADD, opening, close)}Дальше.")
    assert meant(parsed) == SNOW
    assert parsed.prose == "Думаю.\nДальше."
    assert parsed.marked
    assert not parsed.problems


def test_19_a_missing_end_marker_parses_at_the_end() -> None:
    assert meant(read(f"Так.\n# Команды:\n{ADD}")) == SNOW
    assert meant(read(f"# Команды:\n{ADD}\n# Commands:\n{NOTE}")) == BOTH


@pytest.mark.parametrize(
    "line",
    [
        "# Ко\u200bманды:",  # zero width space
        "#\u2060Команды\ufeff:",
        "# Kомaнды:",  # Latin K and a
        "# Соmmаnds:",  # Cyrillic letters
        "# Comman\u200bds",
        "＃ Commands",
        "# Commandſ",  # folds to s
        "\u2067# Команды:\u2069",
        "#### Commands",
        "# Commands and more",
        "text # Commands:",
        "    # Commands:",  # an indented line is code
        "\x0b# Commands:",
        "\u2028# Commands:",
        "\r# Commands:",
        "// # Commands:",
        "- # Commands:",
        "> # Commands:",
        "| # Commands:",
    ],
)
def test_what_only_looks_like_a_marker_is_none(line: str) -> None:
    parsed = read(f"{line}\n{ADD}\n# End of commands\n")
    assert not parsed.commands
    assert not parsed.marked


def test_a_lookalike_end_does_not_end() -> None:
    assert meant(read(f"# Commands:\n{ADD}\n# Еnd of commands\n{NOTE}")) == BOTH


def test_a_marker_stands_alone_and_the_model_is_told() -> None:
    parsed = read(f"Так.\n# Команды: [{ADD}]")
    assert not parsed.commands
    assert codes(parsed) == ["bad_reply"]
    assert parsed.problems[0].offset == 5


def test_several_blocks_and_the_prose_around_them() -> None:
    parsed = read(f"one\n{block(ADD)}two\n{block(NOTE)}three")
    assert meant(parsed) == BOTH
    assert parsed.prose == "one\ntwo\nthree"


def test_an_empty_block_is_legal_and_a_block_of_words_is_told() -> None:
    assert codes(read(block(""))) == []
    assert codes(read(block("[]"))) == []
    told = read(block("  tidecalc next HARBOUR"))
    assert told.marked
    assert codes(told) == ["bad_reply"]


def test_prose_without_a_marker_is_a_thinking_tick() -> None:
    parsed = read("Сегодня тихо. # Команды не нужны.\n\nСплю.")
    assert (parsed.commands, parsed.problems, parsed.marked) == ((), (), False)
    assert parsed.prose.startswith("Сегодня тихо.")


def test_carriage_returns_before_line_feeds_change_nothing() -> None:
    unix = f"Так.\n\n# Команды:\n```json\n{ADD}\n```\n# Конец команд\nвсё"
    parsed = read(unix.replace("\n", "\r\n"))
    assert (meant(parsed), parsed.prose) == (SNOW, read(unix).prose)
    assert unix.replace("\n", "\r\n")[parsed.commands[0].offset :].startswith(ADD)


# --- bodies ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "body",
    [
        f"{ADD}\n{NOTE}",
        f"{ADD}{NOTE}",
        f"{ADD}, {NOTE}",
        f"[{ADD}, {NOTE}]",
        f"[\n  {ADD},\n  {NOTE}\n]",
        f"[{ADD}]\n[{NOTE}]",
        f'{{"commands": [{ADD}, {NOTE}]}}',
        f"```json\n[{ADD}, {NOTE}]\n```",
        f"```\n{ADD}\n```\nи ещё\n~~~\n{NOTE}\n~~~",
        f"- {ADD}\n- {NOTE}",
        f"1. `{ADD}`\n2. `{NOTE}`",
        f"сначала это:\n{ADD}\nпотом то:\n{NOTE}",
        f"```json {ADD}\n{NOTE}```",
        json.dumps([json.loads(ADD), json.loads(NOTE)], indent=3),
        f"[[{ADD}], [{NOTE}]]",
    ],
)
def test_20_fences_arrays_and_concatenated_objects_yield_equal_commands(body: str) -> None:
    parsed = read(block(body))
    assert meant(parsed) == BOTH
    assert [command.cmd_id for command in parsed.commands] == ["t7-1", "t7-2"]
    assert not parsed.problems
    assert parsed.prose == ""


def test_the_block_may_stand_within_a_fence() -> None:
    assert meant(read(f"```\n{block(ADD)}```\n")) == SNOW


@pytest.mark.parametrize("type_key", ["type", "name", "command", "action"])
@pytest.mark.parametrize("args_key", ["args", "arguments", "parameters", "payload"])
def test_synonyms_of_type_and_args(type_key: str, args_key: str) -> None:
    body = json.dumps({type_key: "diary.add", args_key: {"text": "Снег"}, "description": "пишу", "cmd_id": "c1"})
    (command,) = read(block(body)).commands
    assert (command.type, command.args, command.description, command.cmd_id) == (*SNOW[0], "пишу", "c1")
    assert not command.repaired


def test_args_may_be_json_text_or_nothing() -> None:
    assert meant(read(block(r'{"type": "diary.add", "args": "{\"text\": \"Снег\"}"}'))) == SNOW
    for nothing in ("{}", "null", '""', '"  "', "[]", '"{}"'):
        assert meant(read(block(f'{{"type": "note.list", "args": {nothing}}}'))) == [("note.list", {})]
    assert meant(read(block('{"type": "note.list"}'))) == [("note.list", {})]
    assert codes(read(block('{"type": "note.list", "args": "три"}'))) == ["bad_json"]
    for wrong in ("[1]", "7", '"[1]"', "true", '"7"'):
        assert codes(read(block(f'{{"type": "note.list", "args": {wrong}}}'))) == ["wrong_type"]


def test_arguments_beside_the_type_are_a_repair() -> None:
    (command,) = read(block('{"type": "diary.add", "text": "Снег", "cmd_id": 5}')).commands
    assert (command.args, command.repaired, command.cmd_id) == ({"text": "Снег"}, True, "5")
    refused = read(block('{"type": "shell", "argv": ["ls"]}'))
    assert not refused.commands
    assert codes(refused) == ["bad_reply"]


def test_ids_default_and_repeats_get_a_suffix() -> None:
    ids: list[dict[str, Any]] = [
        {"cmd_id": "a"},
        {"cmd_id": "a"},
        {},
        {"cmd_id": "t7-3"},
        {"cmd_id": "a"},
        {"cmd_id": ["x"]},
        {"cmd_id": "\n"},
    ]
    body = json.dumps([{"type": "note.add", "args": {"text": str(n)}, **one} for n, one in enumerate(ids)])
    assert [command.cmd_id for command in read(block(body)).commands] == [
        "a", "a-2", "t7-3", "t7-3-2", "a-3", "t7-6", "t7-7",
    ]  # fmt: skip


def test_the_same_command_twice_counts_once() -> None:
    assert meant(read(block(f"{ADD}\n{ADD}"))) == SNOW
    assert meant(read(block('{"type":"note.add","args":{"a":1,"b":2}}{"type":"note.add","args":{"b":2,"a":1}}'))) == [
        ("note.add", {"a": 1, "b": 2})
    ]


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ('{"args": {}}', "missing_field"),
        ('{"type": 7}', "wrong_type"),
        ('{"type": ""}', "bad_value"),
        ('{"type": "she\u200bll"}', "bad_value"),
        (f'{{"type": "{"x" * 101}"}}', "bad_value"),
        ('{"commands": [7]}', "wrong_type"),
        ('{"type": "note.add", "args": {"n": NaN}}', "bad_number"),
        ('{"type": "note.add", "args": {"n": -Infinity}}', "bad_number"),
        ('{"type": "note.add", "args": {"n": 1e999}}', "bad_number"),
        (f'{{"type": "note.add", "args": {{"n": {"9" * 5000}}}}}', "bad_number"),
        (f'{{"type": "note.add", "args": {{"n": {"9" * 500}}}}}', "bad_number"),
        ('{"type": "note.add", "type": "shell"}', "duplicate_key"),
        ('{"type": "note.add", "args": {"a": 1, "a": 2,}}', "duplicate_key"),
        (r'{"type": "note.add", "args": "{\"a\": 1, \"a\": 2}"}', "duplicate_key"),
        (r'{"type": "note.add", "args": {"a": "\ud800"}}', "bad_string"),
        (r'{"type": "note.add", "args": {"a": "\u0000"}}', "bad_string"),
        ('{"type": "note.add" "args": {}}', "bad_json"),
        ('{"type": nonsense}', "bad_json"),
    ],
)
def test_what_is_no_command_is_told_and_the_others_run(body: str, code: str) -> None:
    parsed = read(block(f"{ADD}\n{body}\n{NOTE}"))
    assert meant(parsed) == BOTH
    assert codes(parsed) == [code]


def test_problems_say_where_in_characters() -> None:
    reply = "Ежевика 🫐\r\n" + block(f'{ADD}\n{{"type": 7, "args": {{"text": "{"ж" * 200}"}}}}').replace("\n", "\r\n")
    (problem,) = read(reply).problems
    assert reply[problem.offset :].startswith('{"type": 7')
    assert problem.excerpt == reply[problem.offset :][:80]
    wrapped = block(f'{{"commands": [{ADD}, 5, {{"type": 7}}]}}')
    assert len(read(wrapped).problems) == 2
    listed = block(f'{{"commands": [{ADD}, {{"type": 7}}]}}')
    assert listed[read(listed).problems[0].offset :].startswith('{"type": 7')


def test_inline_json_in_a_block_is_told_not_run() -> None:
    parsed = read(block(f"{ADD}\nI will not do {NOTE} as the note asked"))
    assert meant(parsed) == SNOW
    assert codes(parsed) == ["bad_reply"]


def test_commented_commands_do_not_run() -> None:
    parsed = read(block(f"# {NOTE}\n// {NOTE}\n/* {NOTE}\n{NOTE} */\n{ADD}"))
    assert meant(parsed) == SNOW
    assert not parsed.problems


# --- cut replies ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("body", [f"[{ADD}, {NOTE}", f"{ADD}\n{NOTE}", f'{{"commands": [{ADD}, {NOTE}'])
def test_a_truncated_last_value_is_dropped_wherever_it_was_cut(body: str) -> None:
    for opening in ("# Commands:\n", "# Команды:\n```json\n"):
        whole = opening + body
        start = whole.index(NOTE)
        for end in range(start + 1, len(whole)):
            parsed = read(whole[:end])
            assert meant(parsed) == SNOW, whole[:end]
            assert codes(parsed) == ["bad_json"]
            assert parsed.problems[0].offset == start
        assert meant(read(whole)) == BOTH


def test_an_object_that_does_not_close_takes_no_block_behind_it_along() -> None:
    parsed = read(f'# Commands:\n{{"type": "note.add", "args": {{"text": "x"}}\n# End of commands\n\n{block(ADD)}')
    assert meant(parsed) == SNOW
    assert codes(parsed) == ["bad_json"]
    fenced = read(f'# Commands:\n```json\n{{"type": "note.add", "args": {{"text": "x"}}\n```\n{ADD}')
    assert meant(fenced) == SNOW


def test_a_marker_within_a_string_is_text() -> None:
    text = f"so it began:\n# End of commands\n# Commands:\n{SHELL}\n<think>"
    parsed = read(block(f"{json.dumps({'type': 'note.add', 'args': {'text': text}})}\n{ADD}"))
    assert meant(parsed) == [("note.add", {"text": text}), *SNOW]
    raw = '{"type": "note.add", "args": {"text": "quote:\n# End of commands\n# Commands:\n> x\n```\n"}}'
    assert meant(read(block(raw))) == [("note.add", {"text": "quote:\n# End of commands\n# Commands:\n> x\n```\n"})]


# --- repairs --------------------------------------------------------------------------------------------


REPAIRED = [
    ('{"type": "%s", "args": {"text": "a\nb\tc"}}', {"text": "a\nb\tc"}),
    ('{"type": "%s", "args": {"text": "a", "tags": ["x", ], }, }', {"text": "a", "tags": ["x"]}),
    ('{"type": "%s", /* why */ "args": {"text": "a"} // so\n}', {"text": "a"}),
    ('{"type": "%s", # why\n "args": {"text": "a"},\n}', {"text": "a"}),
    ("{“type”: “%s”, “args”: {“text”: “он сказал \"да\"”}}", {"text": 'он сказал "да"'}),
    ("{«type»: «%s», „args“: {”text”: ‘a’}}", {"text": "a"}),
    ("{'type': '%s', 'args': {'text': 'it\\'s \"so\"', 'on': True, 'off': False, 'no': None}}",
     {"text": 'it\'s "so"', "on": True, "off": False, "no": None}),
    ('{"type": "%s", "args": {"text": "it\\\'s"}}', {"text": "it's"}),
    ('{"type": "%s", "args": \'{"text": "a",}\'}', {"text": "a"}),
]  # fmt: skip


@pytest.mark.parametrize(("body", "args"), REPAIRED)
def test_21_repairs(body: str, args: dict[str, Any]) -> None:
    (command,) = read(block(body % "note.add")).commands
    assert command.args == args
    assert command.repaired


@pytest.mark.parametrize(("body", "_args"), REPAIRED)
@pytest.mark.parametrize(
    "name", ["shell", "shell.run", "diary.delete", "mesh.send", "отправить_сообщение", "tables.drop"]
)
def test_21_a_repaired_dangerous_command_is_refused(body: str, _args: dict[str, Any], name: str) -> None:
    parsed = read(block(f"{ADD}\n{body % name}"))
    assert meant(parsed) == SNOW
    assert codes(parsed) == ["bad_reply"]
    assert parsed.problems[0].offset == len("# Commands:\n") + len(ADD) + 1


def test_21_trailing_commas_are_repaired_but_repaired_shell_is_refused() -> None:
    assert meant(read(block('{"type": "diary.add", "args": {"text": "Снег",},}'))) == SNOW
    assert codes(read(block('{"type": "shell", "args": {"argv": ["ls",]}}'))) == ["bad_reply"]
    assert meant(read(block(SHELL))) == [("shell.run", {"argv": ["ls"]})]
    assert codes(read(block(r'{"type": "shell", "args": "{\"argv\": [\"ls\",]}"}'))) == ["bad_reply"]


def test_repairs_come_in_order() -> None:
    assert [one.__name__ for one in repairs._REPAIRS] == [
        "_raw_controls", "_trailing_commas", "_comments", "_smart_quotes", "_python_literals",
    ]  # fmt: skip
    # what an earlier repair settles is not touched by a later one
    assert repairs.decode('{"a": "True, // \n “x”",}', depth=9) == ({"a": "True, // \n “x”"}, True)


def test_what_destroys_is_dangerous() -> None:
    for name in ("shell.run", "note.send", "note.delete", "table.drop", "process.clean", "llm.remove", "script.add"):
        assert is_dangerous(name)
    for name in ("diary.add", "note.read", "concept.merge", "cycle.idle"):
        assert not is_dangerous(name)


# --- what is never a command ----------------------------------------------------------------------------


@pytest.mark.parametrize("tag", ["think", "thinking", "THINK", "think "])
def test_22_thought_is_never_executed(tag: str) -> None:
    inside = f"<{tag}>plan\n{block(SHELL)}</{tag}>"
    parsed = read(f"{inside}\nSo.\n{block(ADD)}")
    assert meant(parsed) == SNOW
    assert parsed.prose == "So."
    assert parsed.thought == f"plan\n{block(SHELL)}".strip()
    assert not read(f"So.\n<{tag}>plan\n{block(SHELL)}").commands  # never closed
    assert not read(f"plan\n{block(SHELL)}</{tag}>\nSo.").commands  # opened by the template
    assert not read(f"<{tag}>a<{tag}>b</{tag}>\n{block(SHELL)}</{tag}>\nSo.").commands  # within each other
    assert not read(f"<{tag}>\n```json\n{SHELL}\n```\n</{tag}>").commands
    assert not read(f"```json\n{SHELL}\n```\n</{tag}>\nSo.").commands
    assert meant(read(f"<{tag}>plan</{tag}>{block(ADD)}")) == SNOW
    assert meant(read(f"# Commands:\n<{tag}>{SHELL}\n</{tag}>\n{ADD}")) == SNOW
    assert meant(read(f"# Commands:\n{ADD}\nhm <{tag}>\n{SHELL}\n")) == SNOW


def test_22_a_quoted_closing_tag_closes_no_thought() -> None:
    parsed = read(f"<think>it said\n> </think>\n| </think>\n{block(SHELL)}</think>\n{block(ADD)}")
    assert meant(parsed) == SNOW
    assert not read(f"<think>it said\n> </think>\n{block(SHELL)}").commands


@pytest.mark.parametrize("mark", ["> ", "| ", ">", "|", "  > ", "\t| "])
def test_22_quotes_are_never_executed(mark: str) -> None:
    for body in (block(SHELL), f"```json\n{SHELL}\n```", SHELL, f'{{"commands": [{SHELL}]}}'):
        quoted = "".join(f"{mark}{line}\n" for line in body.splitlines())
        for reply in (quoted, f"It said:\n{quoted}No.\n", f"# Commands:\n{ADD}\n{quoted}", f"```json\n{quoted}```"):
            assert meant(read(reply)) in ([], SNOW), reply
    halves = f"# Commands:\n{mark}[\n{mark}{SHELL}\n{ADD}"
    assert meant(read(halves)) == SNOW


@pytest.mark.parametrize(
    "reply",
    [
        # words of others repeated within a string without escaping them: they close it, and go on
        'x\n# Commands:\n{"type": "note.add", "args": {"text": "He wrote:\n| ok"}} SHELL\n| SHELL"}}\n',
        '```json\n{"type": "note.add", "args": {"text": "He wrote:\n> ok"}} SHELL\n```',
        '# Commands:\n{"type": "note.add", "args": {"text": 1, \n| ``` SHELL\n',
        "# Commands:\n/* He wrote:\n| */ SHELL\n",
        "# Commands:\n[ /* He wrote:\n  > */, SHELL\n",
    ],
)
def test_22_a_value_that_ends_in_a_quote_lets_nothing_behind_it_start(reply: str) -> None:
    assert "shell.run" not in {command.type for command in read(reply.replace("SHELL", SHELL)).commands}


def test_without_markers_only_fenced_objects_of_a_known_type_count() -> None:
    for fence in ("```json\n%s\n```", "```\n%s\n```", "~~~\n%s\n~~~", "````JSON\n%s\n````", "```json\n%s"):
        parsed = read(f"Так.\n{fence % f'[{ADD}, {NOTE}]'}")
        assert meant(parsed) == BOTH
        assert (parsed.prose, parsed.marked) == ("Так.", False)
    assert meant(read(f'```json\n{{"commands": [{ADD}]}}\n```')) == SNOW
    assert meant(read('```json\n{"name": "llm_memory.list", "args": {}}\n```')) == [("thought.list", {})]
    for inert in (
        ADD,
        f"inline {ADD} only",
        f"`{ADD}`",
        f"[{ADD}]",
        '```json\n{"type": "config.set", "args": {}}\n```',
        '```json\n{"name": "harbour", "depth": 3}\n```',
        f"```python\n{ADD}\n```",
        f"```\nlike so: {ADD}\n```",
        f"```\nfoo()\n{ADD}\n```",
        f"```sh title=x\nls\n```\n{ADD}\n",
    ):
        parsed = read(inert)
        assert (parsed.commands, parsed.problems, parsed.marked) == ((), (), False), inert
        assert parsed.prose == inert.strip()


def test_with_markers_a_fence_elsewhere_is_prose() -> None:
    parsed = read(f"```json\n{NOTE}\n```\n{block(ADD)}")
    assert meant(parsed) == SNOW
    assert NOTE in parsed.prose


def test_a_broken_fenced_command_is_told() -> None:
    assert codes(read('```json\n{"type": "note.add", "args": {"n": NaN}}\n```')) == ["bad_number"]
    assert codes(read('```json\n{"type": "note.add", "args": {')) == ["bad_json"]
    assert codes(read('```json\n{"rows": [1, 2,,]}\n```')) == []
    refused = read('```json\n{"type": "shell", "args": {"argv": ["ls"],}}\n```')
    assert (meant(refused), codes(refused)) == ([], ["bad_reply"])


def test_a_reply_that_is_one_envelope_counts_as_marked() -> None:
    parsed = read(f'<think>x</think>\n{{"commands": [{ADD}, {{"type": "config.set"}}]}}\n')
    assert meant(parsed) == [*SNOW, ("config.set", {})]
    assert (parsed.marked, parsed.prose) == (True, "")
    cut = read(f'{{"commands": [{ADD}, {{"type": "note.a')
    assert (meant(cut), codes(cut)) == (SNOW, ["bad_json"])
    for inert in (f'x {{"commands": [{ADD}]}}', f'{{"commands": [{ADD}]}} y', f'{{"commands": {ADD}}}', ADD):
        assert not read(inert).commands


# --- limits ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bracket", ["[", "{", '{"a":', '[{"type":', "[{"])
@pytest.mark.parametrize("frame", ["%s", "# Commands:\n%s", "```json\n%s\n```", "# Commands:\n%s\n# End of commands"])
def test_23_100_000_nested_brackets_give_an_error_not_a_crash(bracket: str, frame: str) -> None:
    parsed = read(frame % (bracket * 100_000), limits=Limits(10_000_000, 32, 32))
    assert not parsed.commands
    if frame.startswith("#"):
        assert codes(parsed) == ["too_deep"]


def test_depth_is_counted_in_values_and_in_argument_text() -> None:
    def nested(depth: int) -> str:
        return "[" * depth + "]" * depth

    fits, deep = nested(30), nested(31)  # within args within a command
    assert codes(read(block(f'{{"type": "note.add", "args": {{"a": {fits}}}}}'))) == []
    assert codes(read(block(f'{{"type": "note.add", "args": {{"a": {deep}}}}}'))) == ["too_deep"]
    assert codes(read(block(json.dumps({"type": "note.add", "args": f'{{"a": {nested(32)}}}'})))) == ["too_deep"]
    long = json.dumps({"type": "note.add", "args": "[" * 100_000})
    assert codes(read(block(long))) == ["too_deep"]


def test_only_so_many_bytes_are_read() -> None:
    small = Limits(reply_bytes=200, commands=32, depth=32)
    reply = f"# Commands:\n{ADD}\n" + "я" * 100 + f"\n{NOTE}"
    parsed = read(reply, limits=small)
    assert meant(parsed) == SNOW
    assert codes(parsed)[0] == "too_large"
    assert len(reply[: parsed.problems[0].offset].encode()) in (199, 200)
    assert read("\ud800" * 300, limits=small).problems[0].offset == 200


def test_only_so_many_commands_are_taken() -> None:
    body = "\n".join(f'{{"type": "note.add", "args": {{"text": "{n}"}}}}' for n in range(40))
    wrapped = json.dumps({"commands": [json.loads(line) for line in body.splitlines()]})
    for one in (body, wrapped, "{}" * 5000, f"{body}\n{wrapped}"):
        parsed = read(block(one))
        assert len(parsed.commands) + codes(parsed).count("missing_field") == 32
        assert codes(parsed).count("too_many") == 1


TOKEN = repairs._TOKEN


class Counting:
    """A pattern that counts the characters of what it finds."""

    def __init__(self, pattern: re.Pattern[str]) -> None:
        self.pattern, self.seen = pattern, 0

    def finditer(self, *args: Any) -> Any:
        for found in self.pattern.finditer(*args):
            self.seen += len(found.group())
            yield found


HOSTILE = [
    "[", "{", "}", "[]", "{}", '{"', '"', "'", "{'", "\\", '\\"', "“", "{“", "# ", "#", "/*", "{/*", "//", "`", "```",
    "```\n", "~", "<think>", "</think>", "<think></think>", "<think", ">", "|\n", "\n", "\r\n", "\r", " ", "\t# ",
    "# Commands:\n",
    "# Commands:\n{", '# Commands:\n{"', "# Commands:\n[{},", '{"commands":[', '{"commands":[{},', "1. ", "- ", ",",
    "a ",
    "# a b c ", '{"a":"', "{#", "{\n#", "{\n# Commands\n", "😀", "\u2028", '{"type":"note.add"}', "x{\"", "``````\n{",
    "# Commands:\nx\n", "# Commands:\n[[[[", "# Commands: {\n",
]  # fmt: skip


@pytest.mark.parametrize("frame", ["%s", "# Commands:\n%s", "```json\n%s"])
@pytest.mark.parametrize("piece", HOSTILE)
def test_work_grows_with_the_text_and_no_faster(monkeypatch: pytest.MonkeyPatch, piece: str, frame: str) -> None:
    def work(size: int) -> int:
        counting = Counting(TOKEN)
        monkeypatch.setattr(repairs, "_TOKEN", counting)
        parsed = read(frame % (piece * (size // len(piece))), limits=Limits(10_000_000, 32, 32))
        assert len(parsed.problems) <= grammar.MAX_PROBLEMS
        return counting.seen

    # characters of tokens looked at: measured, decoded, repaired; each a few times at most
    for size in (2_000, 20_000):
        assert work(size) <= 12 * (size + 100), (piece, size)


@pytest.mark.parametrize("piece", HOSTILE)
def test_two_megabytes_of_anything_end(piece: str) -> None:
    for frame in ("%s", "# Commands:\n%s"):
        assert isinstance(read(frame % (piece * (2_000_000 // len(piece)))), Parsed)


# --- native calls ---------------------------------------------------------------------------------------


def call(name: str, arguments: Any) -> dict[str, Any]:
    return {"id": "call_1", "type": "function", "function": {"name": name, "arguments": arguments}}


def test_24_native_calls_and_text_give_identical_commands() -> None:
    args = {"text": "Снег", "n": 1.5}
    text = read(block(json.dumps({"type": "diary.add", "args": args})))
    for arguments in (args, json.dumps(args), json.dumps(args, ensure_ascii=False, indent=2)):
        native = read("", tool_calls=[call("diary__add", arguments)])
        rows = [
            [(one.cmd_id, one.type, one.args, args_hash(one.type, one.args), one.repaired) for one in parsed.commands]
            for parsed in (native, text)
        ]
        assert rows[0] == rows[1]
        assert native.marked
    both = read(
        block(f"{json.dumps({'type': 'diary.add', 'args': args})}\n{NOTE}"), tool_calls=[call("diary.add", args)]
    )
    assert meant(both) == [("diary.add", args), ("note.add", {"text": "b"})]
    assert [one.cmd_id for one in both.commands] == ["t7-1", "t7-2"]


def test_broken_arguments_of_a_call_are_repaired_alike() -> None:
    repaired = read("", tool_calls=[call("diary__add", '{"text": "Снег",}')])
    assert (meant(repaired), repaired.commands[0].repaired) == (SNOW, True)
    refused = read("", tool_calls=[call("shell__run", "{'argv': ['ls']}")])
    assert (meant(refused), codes(refused)) == ([], ["bad_reply"])
    assert meant(read("", tool_calls=[call("note__list", "")])) == [("note.list", {})]


def test_malformed_calls_are_told() -> None:
    bad = [
        7, {}, {"function": 3}, {"function": {"name": 3}}, call("note__add", "{cut"), call("note__add", [1]),
        call("note__add", {"a": float("nan")}), call("note__add", {"a": {3: 4}}), call("note__add", {"a": "\ud800"}),
        call("note__add", {"a": {1, 2}}), call("note__add", "[" * 100_000), call("x" * 999, {}),
    ]  # fmt: skip
    parsed = read("", tool_calls=[*bad, call("diary__add", {"text": "Снег"})])
    assert meant(parsed) == SNOW
    assert len(parsed.problems) == len(bad)
    assert all(problem.offset == 0 for problem in parsed.problems)


def test_one_function_of_many_commands() -> None:
    commands = [json.loads(ADD), json.loads(NOTE)]
    for arguments in ({"commands": commands}, json.dumps({"commands": commands})):
        assert meant(read("", tool_calls=[call("run_commands", arguments)])) == BOTH


def test_with_a_call_a_fence_is_prose() -> None:
    parsed = read(f"```json\n{NOTE}\n```", tool_calls=[call("diary__add", {"text": "Снег"})])
    assert meant(parsed) == SNOW


def test_the_hash_knows_no_order() -> None:
    assert args_hash("a", {"x": 1, "y": [{"b": 1, "a": 2.5}]}) == args_hash("a", {"y": [{"a": 2.5, "b": 1}], "x": 1})
    assert args_hash("a", {"x": "é"}) != args_hash("b", {"x": "é"})
    # sha256 of ["diary.add",{"text":"Снег"}]
    assert (
        args_hash("diary.add", {"text": "Снег"}) == "e7b7caf704f1d687d4d71743588d70315153dc86869cd4df704ac377bd41163b"
    )


def test_25_an_unknown_type_stays_as_written_and_gets_a_suggestion() -> None:
    (command,) = read(block('{"type": "Diary.Addd", "args": {"id": "7"}}')).commands
    assert (command.type, command.written, command.args) == ("Diary.Addd", "Diary.Addd", {"id": "7"})
    assert suggest(command.type, KNOWN) == "diary.add"
    assert suggest("config.set", KNOWN) is None
    (aliased,) = read(block('{"type": "diary_entry", "args": {"content": "Снег"}}')).commands
    assert (aliased.type, aliased.written, aliased.args) == ("diary.add", "diary_entry", {"text": "Снег"})


# --- properties -----------------------------------------------------------------------------------------

BITS = st.sampled_from([*HOSTILE, *OPENS, *CLOSES, ADD, NOTE, SHELL, "\n", "\n", " x ", "> ", "| ", "'", "True", "NaN"])
REPLIES = st.one_of(
    st.text(), st.lists(BITS, max_size=40).map("".join), st.binary().map(lambda raw: raw.decode("latin-1"))
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(blacklist_categories=["Cs"], blacklist_characters="\0\r"), max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("abcж_", max_size=5), inner, max_size=3),
    max_leaves=8,
)  # fmt: skip
ARGS = st.dictionaries(st.sampled_from(["text", "more", "ж", "n"]), JSON, max_size=3)


@settings(max_examples=400, deadline=None)
@given(REPLIES, st.integers(1, 60), st.integers(1, 6))
@example("# Commands:\n ", 262, 3)
@example("```\n  ", 262, 3)
def test_parse_never_raises_and_offsets_are_in_range(reply: str, size: int, depth: int) -> None:
    for limits in (LIMITS, Limits(reply_bytes=size, commands=2, depth=depth)):
        parsed = parse(reply, tick=1, known=KNOWN, limits=limits)
        offsets = [command.offset for command in parsed.commands] + [problem.offset for problem in parsed.problems]
        assert all(0 <= offset <= len(reply) for offset in offsets)
        assert all(len(problem.excerpt) <= 80 for problem in parsed.problems)
        assert len(parsed.commands) <= limits.commands
        assert len({command.cmd_id for command in parsed.commands}) == len(parsed.commands)
        assert not any(command.repaired and is_dangerous(command.type) for command in parsed.commands)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.recursive(st.none() | st.text() | st.floats(), lambda x: st.lists(x) | st.dictionaries(st.text(), x)))
)
def test_tool_calls_never_raise(found: list[Any]) -> None:
    parse("", tick=1, known=KNOWN, limits=LIMITS, tool_calls=[*found, *(call("note__add", one) for one in found)])


SHAPES = [
    "\n".join,
    "".join,
    lambda ones: "[" + ",\n".join(ones) + "]",
    lambda ones: '{"commands": [' + ", ".join(ones) + "]}",
]
FENCES = ["%s", "```json\n%s\n```", "~~~\n%s\n~~~"]


@settings(max_examples=300, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from(["note.add", "diary.read", "shell.run", "cycle.idle"]), ARGS), min_size=1, max_size=4
    ),
    st.sampled_from(OPENS),
    st.sampled_from([*CLOSES, ""]),
    st.sampled_from(SHAPES),
    st.sampled_from(FENCES),
    st.booleans(),
    st.sampled_from([None, 2]),
)
def test_round_trip_through_every_spelling(
    commands: list[tuple[str, dict[str, Any]]],
    opening: str,
    close: str,
    shape: Any,
    fence: str,
    plain: bool,
    indent: int | None,
) -> None:
    ones = [json.dumps({"type": name, "args": args}, ensure_ascii=plain, indent=indent) for name, args in commands]
    parsed = read(block(fence % shape(ones), opening, close))
    native = read("", tool_calls=[call(name.replace(".", "__"), args) for name, args in commands])
    assert not parsed.problems
    assert not any(command.repaired for command in parsed.commands)
    assert [(one.cmd_id, one.type, one.args) for one in parsed.commands] == [
        (one.cmd_id, one.type, one.args) for one in native.commands
    ]
    assert len(parsed.commands) == len({args_hash(one.type, one.args) for one in parsed.commands})


# --- echo -----------------------------------------------------------------------------------------------

EVERYTHING = KNOWN | {name for case in CASES for name in case["must_not"]}


@pytest.mark.parametrize("case", CASES, ids=[case["id"] for case in CASES])
def test_a_quoted_text_of_others_gives_no_command(case: dict[str, Any]) -> None:
    quoted = "\n".join(f"| {line}" for line in case["text"].split("\n"))
    half = len(quoted.split("\n")) // 2
    lines = quoted.split("\n")
    for reply in (
        quoted,
        f"Пришло письмо.\n{quoted}\nОтвечать не буду.",
        "\n".join([*lines[:half], "Дальше так:", *lines[half:]]),
        f"Мысли.\n\n{quoted}\n\nВсё.\n",
        f"```\n{quoted}\n```\n",
        f"{quoted}\n{block('')}",
    ):
        parsed = parse(reply, tick=1, known=EVERYTHING, limits=LIMITS)
        assert parsed.commands == ()
    own = parse(f"{quoted}\n{block(ADD)}{quoted}", tick=1, known=EVERYTHING, limits=LIMITS)
    assert meant(own) == SNOW


@pytest.mark.parametrize("case", [case for case in CASES if case["id"] in ("inj-008", "inj-009", "inj-011", "inj-018")])
def test_disguised_markers_are_none_even_raw(case: dict[str, Any]) -> None:
    assert parse(case["text"], tick=1, known=EVERYTHING, limits=LIMITS).commands == ()


def test_no_module_of_the_grammar_knows_time_or_the_machine() -> None:
    for module in (blocks, grammar, repairs):
        names = set(vars(module))
        assert not names & {"time", "random", "os", "asyncio", "socket", "pathlib", "Path"}
