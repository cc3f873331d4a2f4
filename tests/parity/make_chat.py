#!/usr/bin/env python3
"""Writes what transformers renders of chat templates, for random conversations, as JSON lines.

Needs transformers (5), jinja2 and numpy; the test needs none of them.

    python3 tests/parity/make_chat.py OUT.jsonl TEMPLATE.jinja... [--conversations N] [--seed S]
    python3 tests/parity/make_chat.py OUT.jsonl TEMPLATE.jinja... --context FILE.json     one case a template, of this context

Of every template first {"define": NAME, "source": TEXT}, then its cases:
    "use"         the template's name
    "context"     the variables as the template sees them
    "given"       the messages before transformers drops their nulls and gives reasoning its other names, where these differ
    "text"        what it renders
    "generation"  the spans of its {% generation %} blocks, [start, end) in bytes of the UTF-8 of "text"; those past its end, as
                  transformers counts where a macro or a set block holds them, lead to "generation_chars" instead, as it gives them
    "error"       in place of "text" the exception's message, and "kind" its type
The clock is pinned: strftime_now sees 2026-11-27 12:34:56, a Friday, whatever the day. --drop-failing leaves out templates that
fail on every conversation and names them.
"""
import argparse
import copy
import datetime
import json
import pathlib
import random

from transformers.utils import chat_template_utils as chat


class Clock:
    @staticmethod
    def now():
        return datetime.datetime(2026, 11, 27, 12, 34, 56)


chat.datetime = Clock

SPECIAL = dict(bos_token="<s>", eos_token="</s>", unk_token="<unk>", pad_token="<pad>")
WORDS = ["Hello", "what is", "the weather", "in Paris", "today?", "2 + 2 = 4", "It's", '"quoted"', "a\\b", "C:\\new\\table", "{{ x }}", "{% if %}",
         "{# c #}", "{", "}}", "<s>", "</s>", "<|im_start|>", "<|im_end|>", "[INST]", "[/INST]", "<|eot_id|>", "<start_of_turn>", "<tool_call>",
         "</tool_call>", "<tool_response>", "<b>&amp;</b>", "你好,世界。", "日本語", "한국어", "naïve", "Straße", "e\u0301a\u0308", "ﬁn", "İi", "ǅ",
         "👋🏽", "👩‍👩‍👧", "🇫🇷", "Привет", "مرحبا", "\u200b", "\u2028", "\x7f", "\x01", "%s %d", "$1", "a/b", "`code`", "```py\nx = 1\n```",
         "\n", "\n\n", "\r\n", "\t", "  ", "'", '"', "''", "#", "---", "null", "True", "/think", "/no_think", "###"]
SPACE = ["", "", "", "", " ", "\n", "\t", "\u00a0", "\u3000", "\x1c", "\x1f ", "\r\n", "  \n", "\u2003", "\x85", "\v", "\f", "\u200b"]
VALUES = [0, 1, -7, 42, 12345678901234567890, 1e-05, 1e16, 2.0, 0.1, -1.5e-300, 1e22, 123456.789, True, False, None, "", "Paris", "it's", 'say "hi"',
          "日本 🎌", "a\nb", "<x>&'", "\\", "\u2028", [], {}, [1, [2.0, "x"], {}], {"k": None, "deep": {"list": [True, 1e-05], "é": "ü"}}]
NAMES = ["get_weather", "search", "add_numbers", "brave_search", "code_interpreter", "web.find", "naïve_tool", "python"]


def text(rng, empty=0.05):
    if rng.random() < empty:
        return rng.choice(["", "", " ", "\n"])
    words = (rng.choice(WORDS) for _ in range(rng.choice([1, 2, 3, 5, 8, 20])))
    return rng.choice(SPACE) + rng.choice([" ", " ", " ", "", "\n"]).join(words) + rng.choice(SPACE)


def parts(rng, content):
    """The content as a list of parts."""
    cut = rng.randrange(len(content) + 1)
    pieces = [content] if rng.random() < 0.6 else [content[:cut], content[cut:]]
    return [{"type": "text", "text": piece} for piece in pieces]


def thought(rng):
    return rng.choice(SPACE) + "Let me think. " + text(rng, 0)


def arguments(rng):
    names = ["city", "unit", "x", "n", "flag", "options", "query", "a b", "é"]
    values = {name: copy.deepcopy(rng.choice(VALUES)) for name in rng.sample(names, rng.choice([0, 1, 2, 3, 4]))}
    kind = rng.random()
    if kind < 0.25:
        return json.dumps(values, ensure_ascii=rng.random() < 0.5)
    return values if kind < 0.98 else rng.choice(["", "not json", None, []])


def schema(rng, depth=0):
    kind = rng.choice(["string", "number", "integer", "boolean", "array", "object", "enum", "any", "union"])
    value = {"type": kind, "description": text(rng, 0.1)} if kind not in ("enum", "any", "union") else {}
    if kind == "enum":
        value = {"type": "string", "enum": rng.sample(["celsius", "fahrenheit", "it's", 'q"', "日本", "K"], rng.randrange(1, 4))}
    elif kind == "union":
        value = {"type": ["string", "null"], "description": "either"} if rng.random() < 0.5 else {"anyOf": [{"type": "string"}, {"type": "null"}]}
    elif kind == "array":
        value["items"] = schema(rng, depth + 1) if depth < 2 else {"type": "string"}
    elif kind == "object":
        names = rng.sample(["a", "b", "street", "zip_code", "ñ"], rng.randrange(0, 4)) if depth < 2 else []
        value["properties"] = {name: schema(rng, depth + 1) for name in names}
        value["required"] = names[:1]
        if rng.random() < 0.3:
            value["additionalProperties"] = rng.choice([False, True, {"type": "number"}])
    if kind in ("number", "integer") and rng.random() < 0.6:
        value.update(minimum=rng.choice([0, -1, 1e-05, 2.0]), maximum=rng.choice([10, 1e16, 1.5]))
    if rng.random() < 0.3:
        value["default"] = copy.deepcopy(rng.choice(VALUES))
    if rng.random() < 0.1:
        value["nullable"] = True
    return value


def tool(rng, name):
    names = rng.sample(["city", "unit", "x", "n", "flag", "options", "query"], rng.choice([0, 1, 1, 2, 3]))
    parameters = {"type": "object", "properties": {key: schema(rng) for key in names}}
    if rng.random() < 0.8:
        parameters["required"] = names[:rng.randrange(len(names) + 1)]
    function = {"name": name, "description": text(rng, 0.1), "parameters": parameters}
    if rng.random() < 0.15:
        function["return"] = {"type": "string", "description": "what it found"}
    if rng.random() < 0.05:
        function["parameters"] = {}
    if rng.random() < 0.1:
        function["strict"] = rng.random() < 0.5
    return {"type": "function", "function": function}


def conversation(rng, n, lists):
    """The messages, the tools, and the other variables of the n-th conversation; lists is the chance of contents that are lists of parts."""
    plain, listed, with_tools = rng.random() < 0.3, rng.random() < lists, rng.random() < 0.4
    invalid, reasons = n % 8 == 7, rng.random() < 0.3
    names = rng.sample(NAMES, rng.randrange(1, 4))
    wording = (lambda: " ".join(rng.choice(WORDS[:6]) for _ in range(3))) if plain else (lambda: text(rng))
    messages = []

    def say(role, content, **more):
        if isinstance(content, str) and (listed or rng.random() < lists / 20):
            content = parts(rng, content)
        messages.append({"role": role, "content": content, **more})

    if rng.random() < 0.5:
        say(rng.choice(["system"] * 9 + ["developer"]), wording())
    turns, role = rng.randrange(1, 7), "user"
    if invalid and rng.random() < 0.3:
        role = "assistant"
    while turns > 0:
        turns -= 1
        if role == "user":
            say("user", wording(), **({"name": "bob"} if rng.random() < 0.03 else {}))
        elif with_tools and rng.random() < 0.5:
            calls = [{"type": "function", "id": f"call{i}{rng.randrange(10000):04d}", "function": {"name": rng.choice(names), "arguments": arguments(rng)}}
                     for i in range(rng.choice([1, 1, 1, 2, 3]))]
            for call in calls:
                if rng.random() < 0.05:
                    call.pop(rng.choice(["type", "id"]))
            more = {"reasoning_content": thought(rng)} if reasons else {}
            say("assistant", rng.choice([None, None, "", wording()]), tool_calls=calls, **more)
            if turns or rng.random() < 0.6:
                for call in calls:
                    result = rng.choice([wording(), json.dumps(arguments(rng)), '{"temperature": 21.5}', ""])
                    result = rng.choice([result, result, result, result, {"temperature": 21.5, "ok": True}, [1, 2.0]]) if rng.random() < 0.2 else result
                    say("tool", result, name=call["function"]["name"], tool_call_id=call.get("id"))
                if rng.random() < 0.8:
                    say("assistant", wording())
        else:
            content, more = wording(), {}
            if reasons:
                if rng.random() < 0.5:
                    more[rng.choice(["reasoning_content", "reasoning_content", "thinking", "reasoning"])] = thought(rng)
                else:
                    content = rng.choice(["<think>\n", "<think>", "\n<think>\n\n"]) + thought(rng) + rng.choice(["\n</think>\n\n", "</think>"]) + content
            if rng.random() < 0.05:
                more["tool_calls"] = rng.choice([None, []])
            say("assistant", content, **more)
        role = "assistant" if role == "user" else "user"
        if invalid and rng.random() < 0.3:
            role = rng.choice(["user", "assistant"])
    if invalid:
        harm = rng.randrange(6)
        if harm == 0:
            say("system", "Late system turn")
        elif harm == 1:
            say(rng.choice(["narrator", "ipython", "function"]), wording())
        elif harm == 2:
            rng.choice(messages).pop("content")
        elif harm == 3:
            rng.choice(messages)["content"] = None
        elif harm == 4:
            rng.choice(messages)["content"] = rng.choice([[], 5, {"text": "x"}, [{"type": "image"}, {"type": "text", "text": "what?"}]])
    tools = [tool(rng, name) for name in names] if with_tools and rng.random() < 0.85 else rng.choice([None, None, None, None, []])
    more = {}
    for name, chance, values in [("enable_thinking", 0.3, [True, False]), ("thinking", 0.1, [True, False]), ("reasoning_effort", 0.1, ["low", "high"]),
                                 ("date_string", 0.1, ["26 Jul 2024"]), ("tools_in_user_message", 0.1, [True, False]), ("custom_tools", 0.03, [None]),
                                 ("preserve_thinking", 0.1, [True, False]), ("model_identity", 0.05, ["You are a bot."]), ("functions", 0.1, ["[]"])]:
        if rng.random() < chance:
            more[name] = rng.choice(values)
    documents = [{"title": "Doc", "text": wording()}] if rng.random() < 0.05 else None
    generate = rng.random() < 0.5
    return messages, dict(tools=tools, documents=documents, add_generation_prompt=generate, **SPECIAL, **more)


def in_bytes(rendered, spans):
    return [[len(rendered[:at].encode()) for at in span] for span in spans]


def case(name, source, messages, variables, normalize=True):
    """What apply_chat_template does between its arguments and the text; without normalize as render_jinja_template alone, which keeps nulls."""
    result = {"use": name}
    seen = messages
    if isinstance(messages, list) and all(isinstance(message, dict) for message in messages):
        seen = chat._normalize_chat_messages(messages) if normalize else messages
        seen = chat._alias_reasoning_fields(chat._plain_template_data(seen))
    result["context"] = {"messages": seen, **variables}
    if json.dumps(seen) != json.dumps(messages):
        result["given"] = messages
    try:
        rendered, spans = chat.render_jinja_template(conversations=[seen], chat_template=source, return_assistant_tokens_mask=True, **variables)
        result["text"], result["generation"] = rendered[0], in_bytes(rendered[0], spans[0])
        if any(at > len(rendered[0]) for span in spans[0] for at in span):
            result["generation_chars"] = spans[0]
            del result["generation"]
    except Exception as error:  # whatever a template or its data lead to
        result["error"], result["kind"] = str(error), type(error).__name__
    return result


def takes(source, content):
    return "error" not in case("", source, [{"role": "user", "content": content}], dict(tools=None, add_generation_prompt=False, **SPECIAL))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("templates", type=pathlib.Path, nargs="+")
    parser.add_argument("--conversations", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--context", type=pathlib.Path)
    parser.add_argument("--drop-failing", action="store_true")
    options = parser.parse_args()
    chat.logger.setLevel("ERROR")  # it warns of templates without {% generation %}
    written = failed = 0
    with options.out.open("w", encoding="utf-8", newline="\n") as out:
        for path in options.templates:
            source = path.read_bytes().decode()
            if options.context:
                variables = json.loads(options.context.read_text(encoding="utf-8"))
                cases = [case(path.name, source, variables.pop("messages"), variables)]
            else:
                rng = random.Random(f"{options.seed} {path.name}")
                lists = 0.8 if not takes(source, "x") else 0.2 if takes(source, parts(rng, "x")) else 0.04
                drawn = [conversation(rng, n, lists) for n in range(options.conversations)]
                cases = [case(path.name, source, *given, normalize=n % 4 != 3) for n, given in enumerate(drawn)]
            if options.drop_failing and all("error" in one for one in cases):
                print(f"left out: {path.name}: {cases[0]['error']}")
                continue
            for line in [{"define": path.name, "source": source}] + cases:
                out.write(json.dumps(line, ensure_ascii=False) + "\n")
            written, failed = written + len(cases), failed + sum("error" in one for one in cases)
    print(f"{written} cases, {failed} of them errors")


main()
