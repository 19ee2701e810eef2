"""Several kernels as functions of one: the source of the resident kernel (shaders/resident.comp).

Each kernel's macros are resolved, then what it declares at global scope gets a name of its own; its push constants
come from the tape, its shared memory becomes a block that lies over the other kernels'.
"""

from __future__ import annotations

import io
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from pcpp import Preprocessor

from engine.errors import EngineError

_DIRECTIVE = re.compile(r"^[ \t]*#[ \t]*(version|extension|pragma)\b([^\n]*)$", re.MULTILINE)
_TOKEN = re.compile(r"\s+|[A-Za-z_]\w*|\.?\d(?:[eE][+-]|[\w.])*|.")
_NAME = re.compile(r"[A-Za-z_]\w*")
_QUALIFIERS = frozenset(
    ("const", "shared", "restrict", "readonly", "writeonly", "coherent", "nonprivate", "volatile", "precise", "in")
)
# what a kernel asks about its place, as resident.comp answers it
_BUILT_INS = {
    "gl_WorkGroupID": "walk_group",
    "gl_NumWorkGroups": "walk_groups",
    "gl_GlobalInvocationID": "(walk_group * uvec3({lanes}u, 1u, 1u) + uvec3(gl_LocalInvocationIndex, 0u, 0u))",
}
_AWAITS = "walk_wait"


class Part(NamedTuple):
    """A kernel to be joined: its label in errors, its expanded source, and the word of its record where each push
    constant begins is that of ``Kernel.pack``.
    """

    label: str
    source: str


@dataclass(slots=True)
class _Declared:
    """A kernel's source taken apart."""

    lanes: int = 0
    text: list[str] = field(default_factory=list)  # declarations and functions, in order
    shared: list[str] = field(default_factory=list)
    push: list[tuple[str, str]] = field(default_factory=list)  # type and name
    names: set[str] = field(default_factory=set)
    types: set[str] = field(default_factory=set)
    references: set[str] = field(default_factory=set)  # types that are buffers


def join(template: str, parts: Sequence[Part], group: int) -> str:
    """The source of a kernel of ``group`` invocations a workgroup that runs any of ``parts``, by number.

    ``template`` has lines ``// EXTENSIONS``, ``// KERNELS`` and ``// CASES`` to be replaced; the kernels end with a
    function ``walk_awaits`` that says which of them wait by themselves. Raise EngineError where a part cannot be run by
    such workgroups.
    """
    extensions: dict[str, None] = {}
    bodies, cases, awaiting = [], [], []
    for number, part in enumerate(parts):
        for name, rest in _DIRECTIVE.findall(part.source):
            if name == "extension":
                extensions[f"#extension{rest.rstrip()}"] = None
        text = _resolved(part)
        declared = _take_apart(text, part.label)
        if declared.lanes > group or (declared.lanes < group and re.search(r"\bbarrier\b", text)):
            raise EngineError(f"kernel {part.label} has {declared.lanes} invocations a workgroup, not {group}")
        bodies.append(_renamed(declared, f"k{number}_", group))
        if re.search(rf"\b{_AWAITS}\b", text):
            awaiting.append(f"kernel == {number}u")
        cases.append(f"        case {number}u: k{number}_run(); break;")
    bodies.append(f"bool walk_awaits(uint kernel) {{ return {' || '.join(awaiting) or 'false'}; }}")
    for marker, lines in (("EXTENSIONS", extensions), ("KERNELS", bodies), ("CASES", cases)):
        template = template.replace(f"// {marker}\n", "\n".join(lines) + "\n", 1)
    return template


def _resolved(part: Part) -> str:
    """The source without comments and macros."""
    processor = Preprocessor()
    processor.line_directive = None
    processor.parse(_DIRECTIVE.sub("", part.source))
    out = io.StringIO()
    processor.write(out)
    if processor.return_code:
        raise EngineError(f"kernel {part.label}: its macros cannot be resolved")
    # what this kernel only reads others write: Mesa takes "readonly" to mean that nobody does, and moves such loads
    text = re.sub(r"\bnonprivate\s+readonly\b", "nonprivate", out.getvalue())
    return re.sub(r"\n\s*\n+", "\n", text)


def _take_apart(text: str, label: str) -> _Declared:
    declared = _Declared()
    for statement in _statements(text):
        words = [token for token in _TOKEN.findall(statement) if not token.isspace()]
        while words[:2] == ["layout", "("]:
            words = words[words.index(")") + 1 :]
        plain = [word for word in words if word not in _QUALIFIERS]
        if not plain or plain == [";"]:
            if match := re.search(r"local_size_x\s*=\s*([\d\s*]+)\)", statement):
                declared.lanes = math.prod(int(factor) for factor in match.group(1).split("*"))
            continue
        if plain[0] == "uniform":
            members = statement[statement.index("{") + 1 : statement.rindex("}")].split(";")
            for member in members:
                if member.strip():
                    kind, name = member.split()
                    declared.push.append((kind, name))
                    declared.names.add(name)
        elif plain[0] in ("struct", "buffer"):
            declared.types.add(plain[1])
            if plain[0] == "buffer":
                declared.references.add(plain[1])
            declared.text.append(statement)
        elif "shared" in words[: words.index(plain[0])]:
            declared.names.update(_declarators(plain))
            declared.shared.append(re.sub(r"\bshared\b", "", statement, count=1))
        elif "{" in words and "(" in words[: words.index("{")] and "=" not in words[: words.index("{")]:
            if plain[1] != "main":
                declared.names.add(plain[1])
                declared.text.append(statement)
        else:
            declared.names.update(_declarators(plain))
            declared.text.append(statement)
    if not declared.lanes:
        raise EngineError(f"kernel {label} states no local size")
    return declared


def _statements(text: str) -> list[str]:
    """What stands at global scope: declarations with their semicolon, functions with their body."""
    found: list[str] = []
    start = depth = 0
    body_of_function = False
    place = 0
    for token in _TOKEN.findall(text):
        place += len(token)
        if token in "({[" and len(token) == 1:
            if token == "{" and depth == 0:
                body_of_function = text[start:place].rstrip(" \n{").endswith(")")
            depth += 1
        elif token in ")}]" and len(token) == 1:
            depth -= 1
        ends = token == ";" or (token == "}" and body_of_function)
        if depth == 0 and ends:
            found.append(text[start:place].strip())
            start, body_of_function = place, False
    return found


def _declarators(words: Sequence[str]) -> list[str]:
    """The variables that a declaration, a type before them, names."""
    names, depth, expected = [], 0, True
    for word in words[1:]:
        if depth == 0 and expected and _NAME.fullmatch(word):
            names.append(word)
            expected = False
        if word in "([{" and len(word) == 1:
            depth += 1
        elif word in ")]}" and len(word) == 1:
            depth -= 1
        elif word == "," and depth == 0:
            expected = True
    return names


def _renamed(declared: _Declared, prefix: str, group: int) -> str:
    names = {name: prefix + name for name in declared.names | declared.types}
    built_ins = {name: value.format(lanes=declared.lanes) for name, value in _BUILT_INS.items()}
    types_only = {name: prefix + name for name in declared.types}
    lines = []
    for statement in declared.text:
        is_type = any(re.search(rf"\b(struct|buffer)\s+{name}\b", statement) for name in declared.types)
        lines.append(_substituted(statement, types_only if is_type else names | built_ins))
    head = [line for line in lines if re.match(r"(layout\(buffer_reference|struct)\b", line)]
    types = "\n".join(head)
    rest = "\n".join(line for line in lines if line not in head)
    variables, loads, addresses = _push(declared, names, types_only)
    block = ""
    if declared.shared:
        members = "\n".join("    " + _substituted(item, names | built_ins) for item in declared.shared)
        block = f"layout(std430) shared {prefix}Shared {{\n    uvec4 {prefix}walk[WALK_SHARED];\n{members}\n}};"
    idle = "" if declared.lanes == group else f"if (gl_LocalInvocationIndex < {declared.lanes}u) "
    run = f"void {prefix}run() {{\n{loads}\n    {idle}{names['kernel']}();\n}}"
    for name, (kind, address) in addresses.items():
        rest = re.sub(rf"\b{names[name]}(?=\s*\.\s*data\b)", f"{kind}({address})", rest)
        rest = re.sub(rf"\b{name}_buffer\b", address, rest)
    return "\n".join(item for item in (types, variables, block, rest, run) if item)


def _push(
    declared: _Declared, names: dict[str, str], types: dict[str, str]
) -> tuple[str, str, dict[str, tuple[str, str]]]:
    """The push constants: variables of scalars, what loads them, and by name the type and the expression of an address.

    An address is read wherever a buffer is used: it takes no registers in between.
    """
    variables, loads, addresses, word = [], [], {}, 0
    for kind, name in declared.push:
        if kind in declared.references:
            addresses[name] = types[kind], f"uvec2(WALK_WORD({word}u), WALK_WORD({word + 1}u))"
            word += 2
        else:
            value = {"uint": "WALK_WORD({0}u)", "int": "int(WALK_WORD({0}u))"}.get(
                kind, "uintBitsToFloat(WALK_WORD({0}u))"
            ).format(word)
            variables.append(f"{kind} {names[name]};")
            loads.append(f"    {names[name]} = {value};")
            word += 1
    return "\n".join(variables), "\n".join(loads), addresses


def _substituted(text: str, names: dict[str, Any]) -> str:
    """``text`` with names replaced, but for members (after a dot)."""
    out, before = [], ""
    for token in _TOKEN.findall(text):
        out.append(names.get(token, token) if before != "." else token)
        if not token.isspace():
            before = token
    return "".join(out)
