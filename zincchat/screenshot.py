"""The README's picture: the real app without a terminal, one question, the mode flipped in mid-reply.

``python -m zincchat.screenshot docs/screenshot.svg`` needs the default model and a Vulkan device.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from zincchat.app import ChatApp
from zincchat.options import ChatOptions

PROMPTS = ("Explain how a computer draws a picture, step by step.",)
TOKENS_BEFORE_FLIP = 100
MAX_TOKENS = 180
PATIENCE_S = 300
_WEB_FONT = re.compile(r"\s*@font-face \{.*?\}", re.DOTALL)


async def take(
    app_factory: Callable[[], ChatApp],
    path: Path,
    size: tuple[int, int] = (140, 42),
    prompts: Sequence[str] = PROMPTS,
    tokens_before_flip: int = TOKENS_BEFORE_FLIP,
) -> None:
    """Chat through ``prompts`` and write the screen to ``path`` as SVG.

    The mode is flipped once, ``tokens_before_flip`` tokens into the last reply. Raises RuntimeError with the
    app's own line where the model cannot be loaded, TimeoutError after five minutes.
    """
    app = app_factory()
    deadline_s = time.monotonic() + PATIENCE_S

    async def wait_for(condition: Callable[[], bool]) -> None:
        while not condition():
            if app.return_code:
                raise RuntimeError(" ".join(map(str, app._exit_renderables)) or "the app ended early")
            if time.monotonic() > deadline_s:
                raise TimeoutError(f"no picture within {PATIENCE_S} s")
            await asyncio.sleep(0.02)

    async with app.run_test(size=size) as pilot:
        await wait_for(lambda: app.panel.view.engine is not None)
        for number, prompt in enumerate(prompts, 1):
            app.replies.ask(prompt)
            if number == len(prompts):
                await wait_for(lambda: not app.replying or len(app.panel.view.history.tokens) >= tokens_before_flip)
                settings = app.panel.view.settings
                app.commands.run("mode", "reuse" if settings and settings.mode == "rerecord" else "rerecord")
            reply = app.replies.newest
            await wait_for(lambda reply=reply: reply is None or reply.complete.is_set())  # type: ignore[misc]
        await pilot.pause(0.5)
        svg = app.export_screenshot(title="zincchat")
    path.parent.mkdir(parents=True, exist_ok=True)
    # The picture must not fetch a font from the network: any monospace font will do.
    path.write_text(_WEB_FONT.sub("", svg), encoding="utf-8")


def main() -> None:
    """Take the picture with the default model, starting in the mode that records every token anew."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("path", type=Path)
    parser.add_argument("--model", default=None, help="a catalogue name or a GGUF file")
    parser.add_argument("--device", default=None, help="an index or part of a name")
    arguments = parser.parse_args()

    from engine import Engine
    from zincchat.cli.loading import device_argument
    from zincchat.cli.resolve import resolve_model

    open_engine = partial(
        Engine.open, resolve_model(arguments.model), device=device_argument(arguments.device), mode="rerecord"
    )
    asyncio.run(take(lambda: ChatApp(open_engine, ChatOptions(seed=1, max_tokens=MAX_TOKENS)), arguments.path))
    print(f"wrote {arguments.path}")


if __name__ == "__main__":
    main()
