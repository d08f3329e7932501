"""Reads the protobuf text format into untyped messages."""

import re

TOKEN = re.compile(
    r"""\s+|\#[^\n]*|(?P<string>"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*')|(?P<word>[A-Za-z_][\w.]*)"""
    r"""|(?P<number>[-+]?(?:inf|nan|\.?\d[\w.]*(?:[eE][-+]?\d+)?))|(?P<mark>[{}\[\]<>:,;])""",
    re.S,
)


class Message:
    """A message: field names with the values in the order of the text."""

    def __init__(self):
        self.fields = {}

    def add(self, name, value):
        self.fields.setdefault(name, []).append(value)

    def has(self, name):
        return name in self.fields

    def get(self, name, default=None):
        """The last value of a field, or the default where the field is unset."""
        return self.fields[name][-1] if name in self.fields else default

    def list(self, name):
        """All values of a repeated field."""
        return self.fields.get(name, [])

    def only(self):
        """The name and message of a oneof block."""
        ((name, values),) = self.fields.items()
        return name, values[-1]


def tokens(text):
    out, at = [], 0
    while at < len(text):
        match = TOKEN.match(text, at)
        if match is None:
            raise ValueError(f"unreadable text at {text[at:at + 30]!r}")
        at = match.end()
        if match.lastgroup:
            out.append((match.lastgroup, match.group(match.lastgroup)))
    return out


def scalar(kind, text):
    if kind == "string":
        return text[1:-1].encode("latin-1", "backslashreplace").decode("unicode_escape")
    if kind == "word":
        return {"true": True, "false": False}.get(text, text)
    try:
        return int(text, 0)
    except ValueError:
        return float(text.rstrip("fF"))


class Parser:
    def __init__(self, text):
        self.tokens, self.at = tokens(text), 0

    def peek(self):
        return self.tokens[self.at] if self.at < len(self.tokens) else ("end", "")

    def take(self):
        token = self.peek()
        self.at += 1
        return token

    def message(self, end):
        out = Message()
        while self.peek()[1] not in end:
            kind, name = self.take()
            if kind != "word":
                raise ValueError(f"expected a field name, got {name!r}")
            if self.peek()[1] == ":":
                self.take()
            if self.peek()[1] == "[":
                self.take()
                while self.peek()[1] != "]":
                    out.add(name, self.value())
                    if self.peek()[1] == ",":
                        self.take()
                self.take()
            else:
                out.add(name, self.value())
            while self.peek() in (("mark", ","), ("mark", ";")):
                self.take()
        self.take()
        return out

    def value(self):
        kind, text = self.take()
        if text in ("{", "<") and kind == "mark":
            return self.message("}" if text == "{" else ">")
        value = scalar(kind, text)
        while kind == "string" and self.peek()[0] == "string":
            value += scalar(*self.take())
        return value


def parse(text):
    """The message of a whole text."""
    return Parser(text).message(("",))
