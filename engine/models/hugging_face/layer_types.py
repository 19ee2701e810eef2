"""Which layers are of which kind, where GGUF has only an interval for it."""

from __future__ import annotations

from engine.models.hugging_face.config import Config


def interval(config: Config, stated: int, usual: str, every: str) -> int:
    """How many layers there are from one ``every`` layer to the next, the others being ``usual`` ones.

    ``stated`` holds where config.json has no layer_types. EngineError where those follow no interval.
    """
    kinds = config.get("layer_types")
    if kinds is None:
        return stated
    layers = config.positive("num_hidden_layers")
    if not isinstance(kinds, list) or len(kinds) != layers:
        raise config.error("layer_types", f"a list of {layers} kinds, one a layer")
    found = kinds.index(every) + 1 if every in kinds else max(stated, layers + 1)
    if kinds != [usual if (layer + 1) % found else every for layer in range(layers)]:
        raise config.error("layer_types", f"{usual} with {every} at a fixed interval")
    return found
