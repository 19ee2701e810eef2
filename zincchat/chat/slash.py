"""Slash commands: the one table that the prompt, the command palette and the help screen read."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SlashCommand:
    """A command's name, its argument as help shows it, and one line saying what it does."""

    name: str
    argument: str
    help: str
    keys: str = ""


COMMANDS = (
    SlashCommand("new", "", "start a new chat", "Ctrl+N"),
    SlashCommand("regen", "", "generate the last reply again", "Ctrl+R"),
    SlashCommand("edit", "[TEXT]", "send TEXT in place of your last message and its reply; without TEXT, edit it"),
    SlashCommand("copy", "", "copy the last reply to the clipboard"),
    SlashCommand("system", "[TEXT]", "set the system prompt; without TEXT, edit it"),
    SlashCommand("think", "[on|off]", "have the model think before it answers, where it can be switched", "F10"),
    SlashCommand("thoughts", "", "unfold what the model thought, or fold it", "Ctrl+F"),
    SlashCommand("mode", "[NAME]", "next decode mode, or the one named: rerecord, reuse and so on", "F2 Ctrl+O"),
    SlashCommand("fusion", "[on|off]", "fused kernels, or one kernel an operation", "F3 Ctrl+T"),
    SlashCommand(
        "barriers",
        "[NAME]",
        "a barrier after every kernel, only where needed, or flags: kernels wait in memory",
        "F4 Ctrl+B",
    ),
    SlashCommand("ab", "", "A/B: the settings before the last change against those in use, in turn, in the chat", "F7"),
    SlashCommand(
        "panel",
        "[PRESET]",
        "measurements: panel, full (beside the article), kernels (GB/s of each), line or off",
        "F5 Ctrl+L",
    ),
    SlashCommand("timeline", "", "show or hide what CPU and GPU did during the last tokens, on one axis", "F6"),
    SlashCommand(
        "measure", "", "fill the full panel: parts of a token, bounds of its bubbles, each remedy for 24 tokens"
    ),
    SlashCommand("export", "FILE", "write a record a token of this chat to FILE.jsonl or FILE.csv"),
    SlashCommand("trace", "FILE", "write the timeline of this chat's tokens to FILE.json, for Perfetto"),
    SlashCommand("freeze", "", "hold the panel still while the chat goes on", "F8 Ctrl+S"),
    SlashCommand("scale", "[MS]", "next larger scale of the time axis, or the one given", "F9 Ctrl+G"),
    SlashCommand("stop", "", "stop the reply and keep what there is", "Esc"),
    SlashCommand("help", "", "keys and what each figure means", "F1"),
    SlashCommand("quit", "", "leave", "Ctrl+Q"),
)
NAMES = tuple(command.name for command in COMMANDS)
WITHOUT_ARGUMENT = tuple(command.name for command in COMMANDS if not command.argument)


@dataclass(frozen=True, slots=True)
class Parsed:
    """A command line split into its name, lower case and without the slash, and the rest."""

    name: str
    argument: str

    @property
    def known(self) -> bool:
        """Whether there is such a command."""
        return self.name in NAMES


def parse(text: str) -> Parsed | None:
    """Read ``text`` as a slash command; None where it is a message (a leading space makes it one)."""
    if not text.startswith("/"):
        return None
    name, _, argument = text[1:].partition(" ")
    return Parsed(name.strip().lower(), argument.strip())
