# SPDX-License-Identifier: BSD-3-Clause
"""Translate algorithms.h and algorithms16.h to Python (--check: compare, write nothing).

    python native/tools/generate_formulas.py [--check]

The algorithms are C for the C library, and Python for compilers of Python (Numba, CUDA). So that
the two cannot drift apart, fastgelu/_formulas.py and _formulas16.py are this translation of the C
text in native/src: one Python function for each C function, with the same operations in the same
order. What it takes of C is what these files use: static functions over V, I, R, T, int and structs
of V; macros; declarations, assignments, if, for, return. Anything else is an error that names the
line.
"""

import argparse
import copy
import keyword
import re
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "native/src/algorithms.h"
SOURCE16 = ROOT / "native/src/algorithms16.h"
REGISTRY = ROOT / "native/src/functions.def"
OUTPUT = ROOT / "fastgelu/_formulas.py"
OUTPUT16 = ROOT / "fastgelu/_formulas16.py"
WIDTH = 100

# Macros that are translated, not expanded, or that mean nothing here.
PRIMITIVES = {"FG_C", "FG_NAME", "FG_COUNT", "FG_H", "FG_DEGREE"}
SUFFIXED = {"FG_NAME", "FG_H"}  # a name that has the dtype appended in C
DROPPED = {"FG_INLINE", "FG_NOINLINE"}


class Unknown(Exception):
    """A construct that the translation does not know."""

    def __init__(self, line, message):
        super().__init__(f"{line}: {message}")


@dataclass(frozen=True)
class Token:
    """kind is "name", "number", "sign" or "end"."""

    kind: str
    text: str
    line: int


# ---- tokens and macros -----------------------------------------------------------------------

TOKEN = re.compile(
    r"(?P<space>\s+)|(?P<name>[A-Za-z_]\w*)|(?P<number>\d+\b)"
    r"|(?P<sign>\#\#|<<|>>|[-+*/%]=|\+\+|--|&&|\|\||[=!<>]=|[-+*/%=<>!?:;,.(){}\[\]&|^~])"
)


def tokens_of(text, line):
    """The tokens of one logical line."""
    tokens, at = [], 0
    while at < len(text):
        match = TOKEN.match(text, at)
        if not match:
            raise Unknown(line, f"{text[at : at + 20]!r} is no token that the translation knows")
        if match.lastgroup != "space":
            tokens.append(Token(match.lastgroup, match.group(), line))
        at = match.end()
    return tokens


def logical_lines(text):
    """(number, text) of each line, without comments, with continued lines joined."""

    def blank(match):
        return "\n" * match.group().count("\n") or " "

    text = re.sub(r"/\*.*?\*/|//[^\n]*", blank, text, flags=re.DOTALL)
    number, joined = 1, ""
    for count, line in enumerate(text.split("\n"), 1):
        if not joined:
            number = count
        if line.endswith("\\"):
            joined += line[:-1] + " "
            continue
        yield number, joined + line
        joined = ""


DEFINE = re.compile(r"\s*#\s*define\s+(\w+)(?:\(([^)]*)\))?\s*(.*)", re.DOTALL)
UNDEF = re.compile(r"\s*#\s*undef\s+(\w+)\s*")


def preprocess(text):
    """All tokens, with macros expanded where they are used."""
    macros, out, pending = {}, [], []
    for number, line in logical_lines(text):
        if not line.lstrip().startswith("#"):
            pending += tokens_of(line, number)
            continue
        out += expand(pending, macros)
        pending = []
        if match := DEFINE.fullmatch(line):
            name, parameters, body = match.groups()
            if name not in PRIMITIVES:
                if parameters is not None:
                    parameters = [p.strip() for p in parameters.split(",") if p.strip()]
                macros[name] = (parameters, tokens_of(body, number))
        elif match := UNDEF.fullmatch(line):
            macros.pop(match.group(1), None)
        else:
            raise Unknown(number, f"directive not understood: {line.strip()}")
    return out + expand(pending, macros)


def arguments_of(tokens, at):
    """The arguments of a macro call whose "(" is at tokens[at], and where it ends."""
    depth, arguments, argument = 0, [], []
    for end in range(at, len(tokens)):
        text = tokens[end].text
        depth += (text in "([{") - (text in ")]}")
        if depth == 0:
            return [*arguments, argument], end + 1
        if depth == 1 and text == ",":
            arguments.append(argument)
            argument = []
        elif end > at:
            argument.append(tokens[end])
    raise Unknown(tokens[at].line, "a macro call without an end")


def expand(tokens, macros, hidden=frozenset()):
    out, at = [], 0
    while at < len(tokens):
        token = tokens[at]
        name = token.text
        at += 1
        if name in DROPPED:
            continue
        if token.kind != "name" or name not in macros or name in hidden:
            out.append(token)
            continue
        parameters, body = macros[name]
        if parameters is not None:
            if at == len(tokens) or tokens[at].text != "(":  # its name, for another macro to call
                out.append(token)
                continue
            arguments, at = arguments_of(tokens, at)
            if len(arguments) != len(parameters):
                raise Unknown(token.line, f"macro {name} takes {len(parameters)} arguments")
            whole = [expand(argument, macros, hidden) for argument in arguments]
            values = dict(zip(parameters, zip(arguments, whole)))
            body = substitute(body, values, token.line)
        out += expand(body, macros, hidden | {name})
    return out


def substitute(body, values, line):
    """A macro's body; values: parameter -> argument as it stands (beside ##), and expanded."""
    out = []
    for at, token in enumerate(body):
        beside = [t.text for t in body[max(at - 1, 0) : at + 2 : 2 if at else 1]]
        if token.kind == "name" and token.text in values:
            out += values[token.text]["##" not in beside]
        else:
            out.append(token)
    while pastes := [i for i, token in enumerate(out) if token.text == "##"]:
        i = pastes[0]
        if not 0 < i < len(out) - 1:
            raise Unknown(line, "## at the end of a macro")
        text = out[i - 1].text + out[i + 1].text
        out[i - 1 : i + 2] = [Token("name", text, line)]
    return [Token(token.kind, token.text, line) for token in out]


# ---- C to Python -----------------------------------------------------------------------------

BINARY = [["||"], ["&&"], ["==", "!="], ["<", ">", "<=", ">="], ["<<", ">>"], ["+", "-"]]
BINARY += [["*", "/", "%"]]
# Operators apply to int alone (V and I are structs in C), and never to negative dividends.
PYTHON = {"||": "or", "&&": "and", "/": "//"}
ATOM = len(BINARY) + 1
TYPES = {"V", "I", "R", "T", "int", "fg_f32"}


def safe(name):
    return name + "_" if keyword.iskeyword(name) else name


@dataclass
class Code:
    """Python text of an expression, and how tightly its outermost operator binds."""

    text: str
    level: int = ATOM

    def within(self, level):
        return self.text if self.level >= level else f"({self.text})"


class Translator:
    """One pass over the tokens: parses C and writes Python."""

    def __init__(self, tokens):
        self.tokens = [*tokens, Token("end", "the end of the file", tokens[-1].line)]
        self.at = 0
        self.structs = {}  # name -> fields
        self.functions = {}  # name -> lines of Python
        self.operations = set()
        self.constants = set()
        self.scopes = []  # of the function at hand: {variable: type}
        self.parts = {}  # struct variables not wholly set yet: {variable: fields set}

    # -- reading

    @property
    def token(self):
        return self.tokens[self.at]

    def ahead(self, text, by=0):
        return self.tokens[min(self.at + by, len(self.tokens) - 1)].text == text

    def accept(self, text):
        if self.ahead(text):
            self.at += 1
            return True
        return False

    def take(self, text):
        if not self.accept(text):
            raise Unknown(self.token.line, f"expected {text!r}, found {self.token.text!r}")

    def name(self):
        token = self.token
        if token.kind != "name":
            raise Unknown(token.line, f"expected a name, found {token.text!r}")
        self.at += 1
        return token.text

    def fail(self, message):
        raise Unknown(self.token.line, message)

    # -- the file

    def file(self):
        while self.token.kind != "end":
            if self.accept("typedef"):
                self.struct()
            elif self.accept("static"):
                self.function()
            elif not self.accept(";"):
                self.fail(f"neither a typedef nor a static function: {self.token.text!r}")

    def struct(self):
        self.take("struct")
        self.plain_name()
        self.take("{")
        fields = []
        while not self.accept("}"):
            if self.name() not in ("V", "I"):
                self.fail("a struct may hold only V and I")
            fields.append(safe(self.name()))
            while self.accept(","):
                fields.append(safe(self.name()))
            self.take(";")
        self.structs[self.plain_name()] = fields
        self.take(";")

    def is_type(self):
        text = self.token.text
        if text in SUFFIXED:
            text = self.tokens[self.at + 2].text
        return text == "const" or text in TYPES or text in self.structs

    def type(self):
        self.accept("const")
        name = self.plain_name()
        if name not in TYPES and name not in self.structs:
            self.fail(f"unknown type {name}")
        self.accept("const")
        if self.accept("*"):
            self.accept("const")
            name += " *"
        return name

    def plain_name(self):
        """A name, or FG_NAME(name), FG_H(name)."""
        name = self.name()
        if name in SUFFIXED:
            self.take("(")
            name = self.name()
            self.take(")")
        return name

    def function(self):
        self.type()
        name = self.plain_name()
        self.take("(")
        self.scopes, self.parts = [{}], {}
        parameters = []
        while not self.accept(")"):
            type_ = self.type()
            parameter = self.name()
            self.scopes[0][parameter] = type_
            parameters.append(safe(parameter))
            if not self.ahead(")"):
                self.take(",")
        if name in self.functions:
            self.fail(f"{name} is defined twice")
        if not self.ahead("{"):
            self.fail(f"{name} has no body")
        body = self.block()
        self.functions[name] = [f"def {safe(name)}({', '.join(parameters)}):", *indent(body)]

    # -- statements: each gives lines of Python

    def block(self):
        self.take("{")
        self.scopes.append({})
        lines = []
        while not self.accept("}"):
            lines += self.statement()
        self.scopes.pop()
        return lines or ["pass"]

    def body(self):
        """What follows an if or a for."""
        if self.ahead("{"):
            return self.block()
        self.scopes.append({})
        lines = self.statement()
        self.scopes.pop()
        return lines

    def statement(self):
        if self.ahead("{"):
            return self.block()
        if self.ahead("(") and self.ahead("void", 1):  # of a parameter that is not used
            self.at += 3
            self.expression()
            self.take(";")
            return []
        if self.accept("return"):
            value = self.expression()
            self.take(";")
            return [f"return {value.text}"]
        if self.accept("if"):
            self.take("(")
            lines = [f"if {self.expression().text}:"]
            self.take(")")
            before = copy.deepcopy(self.parts)
            lines += indent(self.body())
            if self.parts != before:
                self.fail("a struct is set up in one branch only")
            if self.accept("else"):
                lines += ["else:", *indent(self.body())]
                if self.parts != before:
                    self.fail("a struct is set up in one branch only")
            return lines
        if self.accept("for"):
            return self.loop()
        lines = self.declaration() if self.is_type() else self.assignment()
        self.take(";")
        return lines

    def declare(self, name, type_):
        if any(name in scope for scope in self.scopes):
            self.fail(f"{name} hides another {name}, which Python cannot say")
        self.scopes[-1][name] = type_

    def declaration(self):
        type_ = self.type()
        lines = []
        while True:
            name = self.name()
            self.declare(name, type_)
            if self.accept("="):
                if self.accept("{"):
                    values = [self.expression().text]
                    while self.accept(","):
                        values.append(self.expression().text)
                    self.take("}")
                    if len(values) != len(self.structs.get(type_, ())):
                        self.fail(f"{type_} has {len(self.structs.get(type_, ()))} fields")
                    value = f"{type_}({', '.join(values)})"
                else:
                    value = self.expression().text
                lines.append(f"{safe(name)} = {value}")
            elif type_ in self.structs:
                self.parts[name] = []
            if not self.accept(","):
                return lines

    def type_of(self, name):
        for scope in reversed(self.scopes):
            if name in scope:
                return scope[name]
        return self.fail(f"{name} is not a variable here")

    def assignment(self):
        if self.ahead("++") or self.ahead("--"):
            sign = self.name_of_step()
            return [f"{safe(self.name())} {sign}= 1"]
        name = self.name()
        type_ = self.type_of(name)
        if self.ahead("++") or self.ahead("--"):
            return [f"{safe(name)} {self.name_of_step()}= 1"]
        if self.accept("."):
            return self.set_field(name, type_)
        for operator in ("=", "+=", "-=", "*="):
            if self.accept(operator):
                self.parts.pop(name, None)
                return [f"{safe(name)} {operator} {self.expression().text}"]
        return self.fail(f"not an assignment: {name} {self.token.text}")

    def name_of_step(self):
        sign = self.token.text[0]
        self.at += 1
        return sign

    def set_field(self, name, type_):
        fields = self.structs.get(type_) or self.fail(f"{name} is no struct")
        field = safe(self.name())
        if field not in fields:
            self.fail(f"{type_} has no field {field}")
        self.take("=")
        value = self.expression().text
        if name in self.parts:  # a variable for each field until all are there
            done = self.parts[name]
            lines = [f"{name}_{field} = {value}"]
            if field not in done:
                done.append(field)
            if len(done) == len(fields):
                values = ", ".join(f"{name}_{each}" for each in fields)
                lines.append(f"{safe(name)} = {type_}({values})")
                del self.parts[name]
            return lines
        values = ", ".join(value if each == field else f"{safe(name)}.{each}" for each in fields)
        return [f"{safe(name)} = {type_}({values})"]

    def loop(self):
        self.take("(")
        self.scopes.append({})
        first = self.declaration() if self.is_type() else self.assignment()
        self.take(";")
        condition = self.expression().text
        self.take(";")
        step = self.assignment()
        self.take(")")
        before = copy.deepcopy(self.parts)
        lines = [*first, f"while {condition}:", *indent(self.body() + step)]
        if self.parts != before:
            self.fail("a struct is set up in a loop")
        self.scopes.pop()
        return lines

    # -- expressions

    def expression(self):
        condition = self.binary(0)
        if not self.accept("?"):
            return condition
        yes = self.expression()
        self.take(":")
        no = self.expression()
        text = f"{yes.within(0)} if {condition.within(0)} else {no.within(0)}"
        return Code(text, -1)

    def binary(self, level):
        if level == len(BINARY):
            return self.unary()
        left = self.binary(level + 1)
        while self.token.kind == "sign" and self.token.text in BINARY[level]:
            operator = self.token.text
            self.at += 1
            right = self.binary(level + 1)
            operator = PYTHON.get(operator, operator)
            left = Code(f"{left.within(level)} {operator} {right.within(level + 1)}", level)
        return left

    def unary(self):
        if self.accept("-"):
            return Code(f"-{self.unary().within(ATOM)}", ATOM - 1)
        if self.accept("!"):
            return Code(f"not {self.unary().within(ATOM)}", 0)
        return self.postfix()

    def postfix(self):
        value = self.primary()
        while True:
            if self.accept("["):
                value = Code(f"{value.text}[{self.expression().text}]")
                self.take("]")
            elif self.accept("."):
                field = safe(self.name())
                unset = self.parts.get(value.text.rstrip("_"))
                if unset is None:
                    value = Code(f"{value.text}.{field}")
                elif field in unset:
                    value = Code(f"{value.text}_{field}")
                else:
                    self.fail(f"{value.text}.{field} is not set yet")
            else:
                return value

    def primary(self):
        token = self.token
        if token.kind == "number":
            self.at += 1
            return Code(token.text)
        if self.accept("("):
            if self.is_type():
                if self.type() != "int":
                    self.fail("the only cast that is known is (int)")
                self.take(")")
                return self.unary()
            value = self.expression()
            self.take(")")
            return value
        name = self.name()
        if name == "FG_C":
            return self.primitive(lambda constant: f"V.set(K.{self.constant(constant)})")
        if name == "FG_COUNT":
            self.take("(")
            value = self.expression()
            self.take(")")
            return Code(f"len({value.text})")
        if name == "FG_DEGREE":
            return Code(self.primitive(lambda c: f"len(K.{self.constant(c)}) - 1").text, 5)
        if name in SUFFIXED:
            self.take("(")
            name = self.name()
            self.take(")")
            if name.startswith("fg_"):
                return Code(f"K.{self.constant(name.removeprefix('fg_'))}")
        if self.ahead("("):
            return self.call(name)
        if name in self.parts:
            if not self.ahead("."):
                self.fail(f"{name} is not wholly set yet")
        self.type_of(name)
        return Code(safe(name))

    def primitive(self, python):
        self.take("(")
        name = self.name()
        self.take(")")
        return Code(python(name))

    def constant(self, name):
        self.constants.add(name)
        return safe(name)

    def call(self, name):
        operation = re.fullmatch(r"([vi])_(\w+)", name)
        if operation:
            self.operations.add(name)
            called = f"{operation[1].upper()}.{safe(operation[2])}"
        elif name in self.functions:
            called = safe(name)
        else:
            self.fail(f"{name} is neither an operation (v_, i_) nor a function defined above")
        self.take("(")
        arguments = []
        while not self.accept(")"):
            arguments.append(self.expression().text)
            if not self.ahead(")"):
                self.take(",")
        return Code(f"{called}({', '.join(arguments)})")


# ---- writing ---------------------------------------------------------------------------------


def indent(lines):
    return ["    " + line for line in lines]


def wrap(line):
    """A line of Python, broken inside its brackets where it is too long."""
    if len(line) <= WIDTH:
        return [line]
    margin = len(line) - len(line.lstrip())
    depth, breaks, start = 0, [], None
    for at, character in enumerate(line):
        if character in "([":
            depth += 1
            start = at if start is None else start
        depth -= character in ")]"
        if depth == 1 and character == "," and at < WIDTH:
            breaks.append(at)
        if depth == 0 and start is not None and at < WIDTH - 1:
            breaks, start = [], None
    if not breaks:  # one argument: break inside it
        breaks = [at for at, character in enumerate(line) if character == "," and at < WIDTH]
    if not breaks:
        return [line]
    at = breaks[-1] + 1
    rest = " " * (margin + 4 if not line[margin:].startswith("    ") else margin)
    return [line[:at], *wrap(rest + line[at:].lstrip())]


HEADER = '''\
# SPDX-License-Identifier: BSD-3-Clause
"""The algorithms of native/src/{source}, operation by operation.

GENERATED by native/tools/generate_formulas.py: do not edit.
"""

from collections import namedtuple
'''

FORMULAS = '''
def formulas(V, I, K):
    """The value functions, of given operations: a dict, name -> function.

    V and I hold the operations v_... and i_... of native/src/vocabulary.h, K the constants of a
    dtype (see _operations.py). A function takes what the C function does: numbers of V, and
    Python's int or bool where that has an int (see {source}).
    """
'''


def registered():
    """The names of the functions in the registry."""
    names = re.findall(r"^FG_FUNCTION\((\w+),", REGISTRY.read_text(), re.MULTILINE)
    return list(dict.fromkeys(names))


def render(text, source=SOURCE):
    translator = Translator(preprocess(text))
    translator.file()
    missing = [name for name in registered() if name not in translator.functions]
    if missing:
        raise Unknown(1, f"registered, but not defined: {', '.join(missing)}")
    lines = HEADER.format(source=source.name).splitlines()
    lines += [
        f'{name} = namedtuple("{name}", "{" ".join(fields)}")'
        for name, fields in translator.structs.items()
    ]
    lines += ["", *FORMULAS.format(source=source.name).splitlines()]
    for function in translator.functions.values():
        lines += ["", *indent(function)]
    names = [way + name for name in registered() for way in ("", "near_", "far_", "plain_")]
    names = [name for name in names if name in translator.functions]
    lines += ["", "    return {", *(f'        "{name}": {name},' for name in names), "    }"]
    operations = sorted(translator.operations)
    lines += ["", "", "# The operations that occur.", "OPERATIONS = ("]
    lines += [*(f'    "{name}",' for name in operations), ")"]
    wrapped = [part for line in lines for part in wrap(line.rstrip())]
    return "\n".join(wrapped) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="fail if a file would change")
    args = parser.parse_args()
    for source, output in ((SOURCE, OUTPUT), (SOURCE16, OUTPUT16)):
        try:
            text = render(source.read_text(), source)
        except Unknown as problem:
            sys.exit(f"{source}:{problem}\n({Path(__file__).name} knows a part of C only)")
        if not args.check:
            output.write_text(text)
        elif not output.exists() or output.read_text() != text:
            sys.exit(f"out of date: {output.relative_to(ROOT)}; run this without --check")


if __name__ == "__main__":
    main()
