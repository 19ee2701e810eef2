"""Keys and the meaning of each figure, one line each."""

from __future__ import annotations

from typing import ClassVar

from rich.table import Table
from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Static

from zincchat.chat.slash import COMMANDS

TYPING = (
    ("Enter", "send"),
    ("Shift+Enter, Ctrl+J", "new line"),
    ("Up, Down", "earlier messages, at the first and last line"),
    ("Ctrl+C", "copy what is selected"),
    ("Ctrl+P", "command palette: everything below, by name"),
    ("Page Up, Page Down", "scroll the chat; the mouse wheel does too"),
)
FIGURES = (
    ("token", "period of a decode token: wall time since the token before it was handed out"),
    ("CPU work", "thread time to build, record, patch, submit and read back, without waiting for the GPU"),
    (
        "lock wait",
        "wall time of the same steps beyond their thread time: Python's lock or a busy core, never record time",
    ),
    ("GPU idle", "from the end of the token before to the start of this one, by the GPU's own timestamps"),
    ("GPU busy", "from this token's first timestamp to its last, kernels and bubbles together"),
    ("kernels ◇", "time in which at least one kernel of the token ran, read from the clock inside the kernels"),
    ("bubbles ◇", "time between them in which none ran: what the barriers cost; a range where kernels have no clock"),
    (
        "bubbles, flags",
        "from a kernel's last end to the next one's start behind its wait; that one's weights are on their way by then",
    ),
    (
        "◇",
        "measured on a stamped token, one in 16; its GPU cost is shown (below 0: noise); rates leave such tokens out",
    ),
    ("last p50 p95 max", "over the tokens since a setting changed, n of them, at most the last 1,024"),
    ("tok/s, avg", "over the last 16 clean tokens, and over all clean tokens of this reply"),
    ("TTFT", "time to first token: from sending the message, with its prefill and, if need be, loading the model"),
    ("prefill", "prompt tokens fed a second; kept ones were in the KV cache already"),
    ("starved", "GPU idle beyond what two submissions queued ahead leave too: what the CPU has to answer for"),
    ("record", "thread time to record a command buffer (pipelined: its ring of four); median of those recorded"),
    (
        "at native cost",
        "an estimate: the same dispatches from C, 0.2 us each on RADV; the rest is Python, not Vulkan",
    ),
    ("GB/s", "bytes a token must read (weights, and the KV cache where those tokens stood) over the median period"),
    ("streaming floor", "tokens a second of doing nothing but read those bytes, at the read bandwidth measured here"),
    (
        "▶",
        "what a token waits for: CPU or barriers, from a tenth of its period on, else the bus, from 70% of it on",
    ),
    (
        "a → b, ×",
        "median period before and after the last change, without the two tokens that pay for it; × from 8 each on",
    ),
    (
        "A/B",
        "F7: two settings in turns of 12 tokens, bars a and b; × is the median ratio of turns and its 95% interval",
    ),
    ("KV cache, recurrent state", "what the conversation takes on the device; snapshots of the state are in memory"),
    ("re-recorded", "tokens since that change for which a command buffer was recorded"),
    (
        "memory",
        "resident memory of this process; bytes allocated on the device (on a software device, part of the former)",
    ),
    ("process CPU", "of this process over all its threads: 100% is one core"),
)
MODES = (
    ("rerecord", "build and record every token, submit, wait: the usual way, and 'today' in the full panel"),
    ("overlap", "the same, but the next token is recorded while the GPU runs this one"),
    ("reuse", "record once, patch the parameters, submit again, wait"),
    ("pipelined", "several recordings submitted ahead; the GPU feeds itself, the CPU reads behind it"),
    (
        "persistent",
        "one dispatch for up to eight tokens: resident workgroups walk the program; /mode says why it is not here",
    ),
)
BARRIERS = (
    ("every", "a pipeline barrier after each kernel: the GPU drains, then starts the next one"),
    ("needed", "a barrier only where a kernel reads what one before it wrote"),
    (
        "flags",
        "'waits in memory': no barriers; a kernel launches early, asks for its weights and waits for those before it",
    ),
)
ARTICLE = (
    ("article", "of the design article this follows: modelled, never measured, for Qwen3.5-9B on an RX 9070 XT"),
    (
        "this device, ◇ 4",
        "medians of the newest 64 tokens (or /measure's) under the present setting: period of clean, parts of 4 ◇ ones",
    ),
    ("dispatch + barriers", "what the GPU lost, whoever caused it: GPU idle and bubbles"),
    ("submission edges", "a stamped token's GPU time before its first kernel and after its last"),
    ("unexplained", "what none of these accounts for; negative where the stamps themselves cost time"),
    ("tok/s", "each remedy on top of those above it and × its gain; – where that setting has not run yet"),
    (
        "tok/s, – for ×",
        "under 8 tokens, or over 256 of context between the two rows, which slow a token too: /measure has all alike",
    ),
    (
        "a ≤ b ≤ c",
        "bubbles by the clock in the kernels, between two bounds found without it, ± half of 95% intervals",
    ),
    (
        "holds",
        "b lies where it must; 'within ±': a sign is >, but the figures differ by less than their errors",
    ),
    ("a ≤ b", "the same under barriers flags, where only a lower bound is known"),
    ("waits in memory", "another name of barriers flags; the remedies' last row: pipelined with them"),
)
KERNELS = (
    ("kernel", "ops of the same name that read the same type of weights; + joins what fusion made one dispatch of"),
    (
        "n, us",
        "how many a token, and the time of one by the clock in the kernels: medians of the newest 8 stamped tokens",
    ),
    ("GB/s, probe", "bytes that one must read and write over its time, and their share of the bandwidth measured here"),
    ("reads too high", "in mode persistent and under flags a kernel's weights are on their way before its time begins"),
)
BARS = (
    ("R record", "CPU builds the program and records its command buffer (thread time), as far as the GPU idles for it"),
    ("S submit", "CPU patches the parameters and submits (thread time), as far as the GPU idles for it"),
    (
        "W other GPU idle",
        "the GPU idles for another reason, from the end of the token before: read-back, Python, waking up",
    ),
    ("G GPU busy", "the GPU's time of a clean token, which does not tell kernels from bubbles"),
    ("K kernels, B bubbles", "the same of a stamped token ◇"),
    ("F6 timeline", "lanes of the last tokens: · CPU waits for the GPU, I reads the id back, ┃ a token starts"),
    ("· and ┊", "rest of the period that none of the above explains, and its end"),
    ("›", "the bar goes on beyond the axis: F9 takes the next larger scale"),
)


class HelpScreen(ModalScreen[None]):
    """Closed by Esc, F1 or q."""

    CSS_PATH = "help.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,f1,q", "dismiss", "Close", key_display="Esc")]

    def compose(self) -> ComposeResult:
        """Eight tables."""
        with VerticalScroll(id="help") as scroll:
            scroll.border_subtitle = "Up, Down and Page Down scroll, Esc closes"
            commands = [
                (f"/{c.name} {c.argument}".strip(), f"{c.help}  [{c.keys}]" if c.keys else c.help) for c in COMMANDS
            ]
            for title, rows in (
                ("Typing", TYPING),
                ("Commands  [keys]", commands),
                ("Modes (F2)", MODES),
                ("Barriers (F4)", BARRIERS),
                ("A bar, from left to right", BARS),
                ("Figures", FIGURES),
                ("The full panel (F5)", ARTICLE),
                ("The kernels' panel (F5)", KERNELS),
            ):
                yield Static(title, classes="title", markup=False)
                yield Static(_table(rows))


def _table(rows: list[tuple[str, str]] | tuple[tuple[str, str], ...]) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column()
    for name, meaning in rows:
        table.add_row(Text(name, "cyan"), Text(meaning))
    return table
