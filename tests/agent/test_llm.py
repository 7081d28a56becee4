"""The client against a server that does what servers do wrong."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hmp_node.agent import found
from hmp_node.agent.llm import Ask, Client, Endpoint, Reply
from hmp_node.agent.llm_errors import ModelFailed, droppable, is_overflow
from hmp_node.agent.llm_stream import MAX_CHARS, Collector, Lines, TooLong, Unreadable, plain
from hmp_node.endpoints import retry_after
from tests.agent import llm_server as server_of
from tests.agent.llm_server import Answer, Cut, Events, LlmServer, Raw, Request, Say, Script, Stall, Status

ASK = Ask([{"role": "system", "content": "be brief"}, {"role": "user", "content": "привет"}])
TOOLS = [{"type": "function", "function": {"name": "diary__add", "parameters": {"type": "object"}}}]
KEY = "sk-a-key-that-nobody-may-see"
Asking = Callable[..., Awaitable[Reply]]


@pytest.fixture
async def server() -> AsyncIterator[LlmServer]:
    async with LlmServer() as made:
        yield made


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    async with Client(connect_s=5, silence_s=20) as made:
        yield made


def always(answer: Answer) -> Script:
    return lambda _request: answer


def endpoint(server: LlmServer, **more: Any) -> Endpoint:
    return Endpoint("one", server.url, "scripted", **more)


@pytest.fixture
def ask(server: LlmServer, client: Client) -> Asking:
    async def call(answer: Answer, asked: Ask = ASK, deadline_s: float = 20.0, **more: Any) -> Reply:
        server.script = always(answer)
        return await client.complete(endpoint(server), asked, deadline_s=deadline_s, **more)

    return call


async def failure(call: Awaitable[Any]) -> ModelFailed:
    with pytest.raises(ModelFailed) as caught:
        await call
    return caught.value


# --- replies ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stream", [True, False])
async def test_a_reply_comes_whole_streamed_or_not(ask: Asking, server: LlmServer, stream: bool) -> None:
    text = "# Команды\n" + '{"type": "diary.add", "args": {"text": "👩‍🚀 שלום"}}\n' * 20
    heard: list[str] = []
    reply = await ask(Say(text, piece=3, reasoning="hm, so", stream=stream), on_text=heard.append)
    assert (reply.text, reply.reasoning, reply.finish, reply.model) == (text, "hm, so", "stop", "scripted")
    assert "".join(heard) == text
    assert reply.usage == {"prompt_tokens": 4, "completion_tokens": len(text) // 4 + 1}
    body = server.requests[-1].body
    assert body["messages"] == ASK.messages
    assert (body["stream"], body["max_tokens"], body["temperature"]) == (True, 2048, 0.7)
    assert not {"tools", "response_format", "presence_penalty"} & body.keys()


async def test_what_is_asked_for_is_sent(ask: Asking, server: LlmServer) -> None:
    asked = replace(ASK, temperature=1.5, top_p=0.95, presence_penalty=0.5, max_tokens=7, tools=TOOLS, json_mode=True)
    reply = await ask("one", asked)
    body = server.requests[-1].body
    assert (body["temperature"], body["top_p"], body["presence_penalty"], body["max_tokens"]) == (1.5, 0.95, 0.5, 7)
    assert (body["tools"], body["response_format"]) == (TOOLS, {"type": "json_object"})
    assert not reply.tools_refused
    assert not reply.json_refused


@pytest.mark.parametrize("stream", [True, False])
async def test_tool_calls_are_joined(ask: Asking, stream: bool) -> None:
    calls = (("diary__add", '{"text": "раз"}'), ("diary__list", {"limit": 5}), ("cycle__show", ""))
    reply = await ask(Say("so:", tool_calls=calls, stream=stream), replace(ASK, tools=TOOLS))
    assert [(call["function"]["name"], call["function"]["arguments"]) for call in reply.tool_calls] == list(calls)
    assert (reply.text, reply.finish) == ("so:", "tool_calls")


async def test_malformed_tool_calls_are_handed_on_as_they_came(ask: Asking) -> None:
    reply = await ask(server_of.malformed_tools(), replace(ASK, tools=TOOLS))
    assert [call["function"]["arguments"] for call in reply.tool_calls] == [
        '{"text": "one",}',
        "[1, 2]",
        '{"text": "tw',
        "null",
        "",
    ]


async def test_calls_without_an_index_and_calls_that_share_one_stay_apart(ask: Asking) -> None:
    def event(*calls: dict[str, Any]) -> str:
        return "data: " + json.dumps({"choices": [{"delta": {"tool_calls": list(calls)}}]})

    def call(name: str, text: str, **more: Any) -> dict[str, Any]:
        return {"function": {"name": name, "arguments": text}} | more

    shared = Events([event(call("a", "{}", index=0, id="1")), event(call("b", "{}", index=0, id="2")), "data: [DONE]"])
    without = Events([event(call("a", "{}"), call("b", "{}")), "data: [DONE]"])
    for answer in (shared, without):
        reply = await ask(answer)
        assert [one["function"]["name"] for one in reply.tool_calls] == ["a", "b"]


async def test_two_megabytes_of_brackets_arrive(ask: Asking) -> None:
    assert len((await ask(server_of.brackets())).text) == 2_000_011


async def test_a_reply_without_end_is_cut_at_a_bound(ask: Asking) -> None:
    reply = await ask(Say("a" * (MAX_CHARS + 100_000), piece=100_000))
    assert reply.finish == "cut"
    assert MAX_CHARS - 100_000 <= len(reply.text) <= MAX_CHARS


async def test_a_thought_stays_in_the_raw_text(ask: Asking) -> None:
    reply = await ask(server_of.thinking('{"type": "shell.run"}'))
    assert reply.text.startswith("<think>")
    assert reply.text.endswith("I only thought about it.")


async def test_an_empty_reply_is_a_reply(ask: Asking) -> None:
    for stream in (True, False):
        assert (await ask(Say("", stream=stream))).text == ""


async def test_halves_of_characters_and_nul_never_reach_the_store(ask: Asking) -> None:
    events = [
        'data: {"choices": [{"delta": {"content": "\\ud83d"}}]}',
        'data: {"choices": [{"delta": {"content": "\\ude00 \\u0000 \\ud83d"}}]}',
        "data: [DONE]",
    ]
    text = (await ask(Events(events))).text
    assert text == "😀 \ufffd \ufffd"
    assert text.encode()


async def test_parts_refusals_and_other_names_of_reasoning_are_read(ask: Asking) -> None:
    def whole(message: dict[str, Any], reason: str = "stop") -> Raw:
        return Raw(json.dumps({"choices": [{"message": message, "finish_reason": reason}]}).encode())

    parts = [{"type": "thinking", "thinking": [{"text": "hm"}]}, {"type": "text", "text": "one"}, 7]
    reply = await ask(whole({"content": parts}))
    assert (reply.text, reply.reasoning, reply.usage) == ("one", "hm", {})
    assert (await ask(whole({"content": None, "refusal": "no"}, "content_filter"))).text == "no"
    assert (await ask(whole({"content": "one", "reasoning": "so"}, "max_tokens"))).reasoning == "so"
    assert (await ask(whole({"content": "one"}, "eos"))).finish == "stop"
    assert (await ask(whole({"content": "one"}, "length"))).finish == "length"
    old = await ask(whole({"content": None, "function_call": {"name": "a", "arguments": "{}"}}, "function_call"))
    assert [call["function"]["name"] for call in old.tool_calls] == ["a"]
    assert old.finish == "tool_calls"


async def test_usage_that_cannot_be_is_left_out(ask: Asking) -> None:
    usage = {"prompt_tokens": 10**30, "completion_tokens": -5}
    body = {"choices": [{"message": {"content": "one"}}], "usage": usage}
    assert (await ask(Raw(json.dumps(body).encode()))).usage == {"prompt_tokens": 10**9}


async def test_a_server_that_keeps_the_connection_open_does_not_keep_us(
    ask: Asking, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hmp_node.agent.llm.GRACE_S", 0.05)
    held = asyncio.Event()

    original = LlmServer._give

    async def give(self: LlmServer, http: Any, request: Request, answer: Answer) -> Any:
        made = await original(self, http, request, answer)
        await held.wait()
        return made

    monkeypatch.setattr(LlmServer, "_give", give)
    reply = await ask(Events(['data: {"choices": [{"delta": {"content": "one"}, "finish_reason": "stop"}]}']))
    assert (reply.text, reply.finish) == ("one", "stop")
    held.set()


# --- what endpoints cannot do ------------------------------------------------------------------------------


async def test_tools_that_are_refused_are_left_out_in_the_same_call(server: LlmServer, client: Client) -> None:
    server.script = lambda request: server_of.no_tools(request, "one")
    reply = await client.complete(endpoint(server), replace(ASK, tools=TOOLS), deadline_s=20)
    assert (reply.text, reply.tools_refused, reply.json_refused, server.calls) == ("one", True, False, 2)


async def test_json_mode_that_is_refused_is_left_out(server: LlmServer, client: Client) -> None:
    server.script = lambda request: server_of.no_json(request, "one")
    reply = await client.complete(endpoint(server), replace(ASK, json_mode=True), deadline_s=20)
    assert (reply.text, reply.tools_refused, reply.json_refused) == ("one", False, True)


async def test_sampling_that_an_endpoint_refuses_is_left_out_from_then_on(server: LlmServer, client: Client) -> None:
    def script(request: Request) -> Answer:
        for name in ("stream_options", "temperature", "top_p", "presence_penalty"):
            if name in request.body:
                return server_of.error(400, f"Unsupported value: '{name}' does not support it with this model.")
        if "max_tokens" in request.body:
            told = "Unsupported parameter: 'max_tokens' is not supported. Use 'max_completion_tokens' instead."
            return server_of.error(400, told)
        return "one"

    server.script = script
    asked = replace(ASK, presence_penalty=1.0)
    reply = await client.complete(endpoint(server), asked, deadline_s=20)
    assert (reply.text, server.calls) == ("one", 6)
    assert server.requests[-1].body["max_completion_tokens"] == 2048
    await client.complete(endpoint(server), asked, deadline_s=20)
    assert server.calls == 7


@pytest.mark.parametrize(
    ("status", "words", "dropped"),
    [
        (400, "registry.ollama.ai/library/gemma:2b does not support tools", "tools"),
        (400, '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set', "tools"),
        (500, "tools param requires --jinja flag", "tools"),
        (404, "No endpoints found that support tool use", "tools"),
        (422, '[{"type": "extra_forbidden", "loc": ["body", "response_format"]}]', "response_format"),
        (500, "error parsing tool call: raw='{\"text\": ', err=unexpected end of JSON input", None),
        (400, "maximum context length is 16385 tokens, your messages resulted in 20000 (in the tools)", None),
        (401, "tools", None),
        (429, "tools", None),
        (400, "something else", None),
    ],
)
def test_what_a_refusal_is_about(status: int, words: str, dropped: str | None) -> None:
    assert droppable(status, words, {"tools", "response_format", "messages"}) == dropped


# --- errors ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (server_of.wrong_key(), "model_refused"),
        (server_of.error(403, "no"), "model_refused"),
        (server_of.unknown_model(), "model_refused"),
        (server_of.error(404, "model 'nosuch' not found"), "model_refused"),
        (server_of.error(400, "model nosuch not found, try pulling it first"), "model_refused"),
        (Status(404, "404 page not found"), "model_refused"),
        (Status(302, "", {"Location": "http://192.0.2.1/v1"}), "model_broken"),
        (server_of.error(402, "Insufficient credits"), "model_refused"),
        (server_of.error(429, "You exceeded your quota", code="insufficient_quota"), "model_refused"),
        (server_of.error(400, "bad"), "model_refused"),
        (server_of.busy(), "model_busy"),
        (Status(500, "oops"), "model_unreachable"),
        (Status(502, "<html>" * 20_000), "model_unreachable"),
        (Status(503, ""), "model_unreachable"),
        (Status(204, ""), "model_broken"),
        (server_of.not_json(), "model_broken"),
        (server_of.empty_choices(), "model_broken"),
        (Raw(b""), "model_broken"),
        (Raw(b"{" * 100_000), "model_broken"),
        (Raw(b"[1]"), "model_broken"),
        (Raw(b'{"choices": [{"message": "one"}]}'), "model_broken"),
        (Raw(b"\xff\xfe\x00"), "model_broken"),
        (Raw(b'{"error": {"message": "boom", "code": 502}}'), "model_unreachable"),
        (Raw(b'{"error": "rate_limit reached"}'), "model_busy"),
        (Events(["data: {not json"]), "model_broken"),
        (Events(["data: [DONE]"]), "model_broken"),
        (Events(['event: error\ndata: {"error": {"message": "prompt is too long", "code": 400}}']), "model_overflow"),
        (Events([": still loading", 'data: {"choices": [{"delta": {"role": "assistant"}}]}']), "model_broken"),
        (Cut(), "model_unreachable"),
    ],
)
async def test_errors_are_typed_and_never_replies(ask: Asking, answer: Answer, code: str) -> None:
    error = await failure(ask(answer))
    assert str(error.code) == code
    assert "127.0.0.1" in error.message
    assert len(error.message) < 500
    assert error.message.isprintable()


@pytest.mark.parametrize(
    "words",
    [
        server_of.USUAL_OVERFLOW,
        "the request exceeds the available context size. try increasing the context size: exceed_context_size_error",
        "The decoder prompt (length 9000) is longer than the maximum model length of 4096.",
        "input length exceeds the context length",
        "Trying to keep the first 9000 tokens when context the overflows. However, the model is loaded with context",
        "prompt is too long: 210000 tokens > 200000 maximum",
        "The input token count (1200000) exceeds the maximum number of tokens allowed (1048575).",
        "`inputs` tokens + `max_new_tokens` must be <= 4096. Given: 5000",
        "Please reduce the length of the messages or completion.",
        "'max_tokens' is too large: 20000. This model's maximum context length is 4096 tokens",
        "input is too large to process. increase the physical batch size",
    ],
)
async def test_every_spelling_of_an_overflow(ask: Asking, words: str) -> None:
    assert str((await failure(ask(server_of.overflow(words, code=None)))).code) == "model_overflow"
    assert not is_overflow(429, words)


async def test_a_silent_server_and_a_slow_one(server: LlmServer) -> None:
    async with Client(connect_s=5, silence_s=0.2) as hasty:
        server.script = lambda _request: Stall()
        assert str((await failure(hasty.complete(endpoint(server), ASK, deadline_s=20))).code) == "timed_out"
        server.script = lambda _request: Say("still here", piece=1, delay_s=0.05)  # longer than the silence in all
        assert (await hasty.complete(endpoint(server), ASK, deadline_s=20)).text == "still here"
        server.script = lambda _request: Stall("half a reply")
        reply = await hasty.complete(endpoint(server), ASK, deadline_s=20)
        assert (reply.text, reply.finish) == ("half a reply", "cut")


async def test_the_deadline_holds_for_a_server_that_drips(ask: Asking) -> None:
    reply = await ask(Say("a" * 100_000, piece=1, delay_s=0.02), deadline_s=0.5)
    assert reply.finish == "cut"
    assert 0 < len(reply.text) < 1000
    assert str((await failure(ask(Stall(), deadline_s=0.1))).code) == "timed_out"


async def test_a_cut_stream_keeps_its_text_and_no_half_of_a_call(ask: Asking) -> None:
    reply = await ask(Cut("half a reply"))
    assert (reply.text, reply.finish) == ("half a reply", "cut")
    whole = ("diary__add", '{"text": "one"}')
    reply = await ask(Cut(tool_calls=(whole, ("diary__delete", '{"ids": [1'))))
    assert [call["function"]["name"] for call in reply.tool_calls] == ["diary__add"]
    reply = await ask(Cut(tool_calls=(whole, ("cycle__stop", ""))))  # its arguments may have been on the way
    assert [call["function"]["name"] for call in reply.tool_calls] == ["diary__add"]


async def test_rubbish_in_a_stream_ends_the_reply_there(ask: Asking) -> None:
    good = 'data: {"choices": [{"delta": {"content": "one "}}]}'
    for bad in ("data: {rubbish", 'data: {"error": {"message": "overloaded"}}'):
        reply = await ask(Events([good, bad, good, "data: [DONE]"]))
        assert (reply.text, reply.finish) == ("one ", "cut")


async def test_a_stream_that_just_ends(ask: Asking) -> None:
    reply = await ask(Events(['data: {"choices": [{"delta": {"content": "one"}}]}']))
    assert reply.finish == "cut"


async def test_a_connection_that_cannot_be_had(client: Client, server: LlmServer) -> None:
    async with LlmServer() as gone:
        url = gone.url
    error = await failure(client.complete(Endpoint("one", url, "m"), ASK, deadline_s=20))
    assert str(error.code) == "model_unreachable"
    assert "refused" in error.message
    assert "running" in error.remedy
    https = endpoint(server).url.replace("http:", "https:")
    error = await failure(client.complete(Endpoint("one", https, "m"), ASK, deadline_s=20))
    assert str(error.code) == "model_unreachable"


async def test_retry_after_is_read(ask: Asking) -> None:
    assert (await failure(ask(server_of.busy("7")))).retry_after_s == 7
    later = format_datetime(datetime.now(UTC) + timedelta(seconds=100), usegmt=True)
    seconds = (await failure(ask(server_of.busy(later)))).retry_after_s
    assert seconds is not None
    assert 60 < seconds <= 100
    assert (await failure(ask(server_of.busy()))).retry_after_s is None
    assert str((await failure(ask(Status(503, "loading", {"Retry-After": "2"})))).code) == "model_busy"


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("0", 0), ("-5", 0), ("1.5", 1.5), ("999999999", 86_400), ("nan", None), ("soon", None), ("", None), (None, None)],
)
def test_forms_of_retry_after(text: str | None, seconds: float | None) -> None:
    assert retry_after(text, datetime.now(UTC)) == seconds


async def test_a_key_is_sent_and_never_told(server: LlmServer, client: Client) -> None:
    one = endpoint(server, key=KEY)
    await client.complete(one, ASK, deadline_s=20)
    assert server.requests[-1].key == KEY
    assert KEY not in repr(one)
    for answer in (server_of.error(401, f"no such key: {KEY}"), Raw(json.dumps({"error": f"bad {KEY}"}).encode())):
        server.script = always(answer)
        error = await failure(client.complete(one, ASK, deadline_s=20))
        assert "[key]" in error.message
        assert KEY not in f"{error!r} {error} {error.remedy} {error.__cause__!r}"


# --- lists, and what runs here -------------------------------------------------------------------------------


async def test_models_are_listed(client: Client, server: LlmServer) -> None:
    server.models = ("a", "b")
    assert await client.models(endpoint(server)) == ["a", "b"]
    server.models = None
    assert await client.models(endpoint(server)) == []
    server.key = KEY
    assert str((await failure(client.models(endpoint(server)))).code) == "model_refused"


async def test_what_runs_on_this_machine_is_found() -> None:
    async with (
        LlmServer(models=("text-embedding-x", "qwen")) as one,
        LlmServer(models=()) as empty,
        LlmServer(key=KEY) as locked,
        LlmServer() as gone,
    ):
        places = [("One", one.url), ("Empty", empty.url), ("Locked", locked.url)]
        assert await found.look(places, seconds=5) == [("One", one.url, "qwen"), ("Empty", empty.url, "")]
        nowhere = gone.url
    assert await found.look([("Gone", nowhere)], seconds=5) == []
    assert found.yaml_lines(found.Found("One", one.url, "qwen")) == ("llm:", f"  url: {one.url}")


# --- pure parts ----------------------------------------------------------------------------------------------


@given(text=st.text(alphabet="ab\r\nдё", max_size=60), cuts=st.lists(st.integers(0, 100), max_size=6))
def test_lines_do_not_depend_on_how_bytes_come(text: str, cuts: list[int]) -> None:
    raw = text.encode()
    lines = Lines()
    made: list[str] = []
    edges = [0, *sorted(min(cut, len(raw)) for cut in cuts), len(raw)]
    for start, end in pairwise(edges):
        made += lines.feed(raw[start:end])
    made.append(lines.end())
    assert made == text.replace("\r\n", "\n").replace("\r", "\n").split("\n")


KEYS = st.sampled_from(
    [
        *(
            "choices",
            "delta",
            "message",
            "content",
            "text",
            "tool_calls",
            "function",
            "name",
            "arguments",
            "index",
            "id",
        ),
        "usage",
        "error",
        "finish_reason",
    ]
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=12,
)


@given(values=st.lists(st.dictionaries(KEYS, JSON, max_size=5), max_size=5))
def test_a_collector_takes_any_json(values: list[Any]) -> None:
    made = Collector()
    for value in values:
        try:
            made.line("data: " + json.dumps(value))
            made.line("data: " + json.dumps({"choices": [{"delta": value}]}))
        except (Unreadable, TooLong):
            break
    assert made.text.encode() is not None
    assert isinstance(made.calls(whole=False), list)


@given(st.text(st.characters(exclude_categories=()), max_size=20))
def test_plain_text_can_be_encoded(text: str) -> None:
    assert "\0" not in plain(text)
    assert plain(text).encode() is not None


async def test_the_server_runs_as_a_process_of_its_own(client: Client, tmp_path: Path) -> None:
    port_file = tmp_path / "port"
    words = ("-m", "tests.agent.llm_server", str(port_file), "tests.agent.llm_server:echo")
    process = await asyncio.create_subprocess_exec(sys.executable, *words, cwd=Path(__file__).parents[2])
    try:
        async with asyncio.timeout(60):
            while not port_file.exists():
                assert process.returncode is None
                await asyncio.sleep(0.02)
        url = f"http://127.0.0.1:{port_file.read_text()}/v1"
        assert (await client.complete(Endpoint("one", url, "m"), ASK, deadline_s=20)).text == "This is reply 0."
    finally:
        process.terminate()
        assert await asyncio.wait_for(process.wait(), 20) == 0
