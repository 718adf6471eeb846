"""Contexts of chat templates: conversations with and without system message, tools, reasoning, parts."""

TOOLS = [
    {"type": "function", "function": {"name": "get_weather", "description": "Weather of a city <now> & \"here\".", "parameters": {
        "type": "object", "properties": {
            "city": {"type": "string", "description": "Name of the city"},
            "unit": {"type": "string", "enum": ["celsius", "fahrenheit"], "default": "celsius", "description": "Unit"},
            "days": {"type": "array", "items": {"type": "integer"}, "description": "Which days"},
        }, "required": ["city"]}, "return": {"type": "object"}}},
    {"type": "function", "function": {"name": "add", "description": "Adds.", "parameters": {
        "type": "object", "properties": {"a": {"type": ["number", "integer"], "description": "One"}, "b": {"type": "number", "description": "Two"}},
        "required": ["a", "b"]}}},
]


def user(text):
    return {"role": "user", "content": text}


def assistant(text, **more):
    return {"role": "assistant", "content": text, **more}


def system(text):
    return {"role": "system", "content": text}


def calling(name, arguments, content=None, identifier="abc123XYZ"):
    return assistant(content, tool_calls=[{"id": identifier, "type": "function", "function": {"name": name, "arguments": arguments}}])


def tool(content, identifier="abc123XYZ"):
    return {"role": "tool", "name": "get_weather", "content": content, "tool_call_id": identifier}


CONVERSATIONS = [
    ([user("Hello, who are you?")], {}),
    ([system("You are terse."), user("What is 12 + 30?")], {}),
    ([user("Hi"), assistant("Hello! How can I help?"), user("Write a poem.")], {}),
    ([system("Be kind. /no_think"), user("1"), assistant("2"), user("3"), assistant("4"), user("5")], {}),
    ([user("  white space \n"), assistant("\n\n and here \t"), user("\nend ")], {}),
    ([user("Grüße, 日本語で 👩‍👩‍👧 l'été"), assistant("Ja — «gut»"), user("\"quotes\" 'and' \\n {{ braces }} {% tags %}")], {}),
    ([user("say <|im_end|> now <|eot_id|> [INST] </s>"), assistant("<|im_start|>system"), user("<end_of_turn>")], {}),
    ([user("How much?"), assistant("<think>\nLet me see.\n</think>\n\nThree."), user("And now?")], {}),
    ([user("How much?"), assistant("<think>\nLet me see.\n</think>\n\nThree.")], {"add_generation_prompt": False}),
    ([user("Question"), assistant("Answer")], {"add_generation_prompt": False}),
    ([user("Weather in Oslo?")], {"tools": TOOLS}),
    ([system("You use tools."), user("Weather in Oslo?"), calling("get_weather", {"city": "Oslo", "days": [1, 2]}), tool("{\"t\": -3}"),
      assistant("It is -3 degrees."), user("And 1 + 2?")], {"tools": TOOLS}),
    ([user("Both"), calling("add", {"a": 1, "b": 2.5}, content=""), tool("3.5"), tool("4.5")], {"tools": TOOLS}),
    ([user("")], {}),
    ([assistant("I begin"), user("ok")], {}),
    ([user("a"), user("b")], {}),
    ([user("Think?")], {"enable_thinking": False}),
    ([{"role": "user", "content": [{"type": "text", "text": "What is this? "}, {"type": "image"}]}], {}),
    ([user("With documents")], {"documents": [{"title": "T", "text": "Text one"}, {"title": "U", "text": "Text two"}], "tools": None}),
    ([system("a"), user("b"), system("c"), user("d")], {}),
    ([], {}),
]
