"""The driver of the faked RDNA4 card, brought on request only: nothing but ``make rdna4`` needs it."""

from __future__ import annotations

from zincchat import faked_card
from zincchat.paths import data_dir
from zincchat.setup.driver import Bringing, bring
from zincchat.setup.folders import staging
from zincchat.setup.probe import Device
from zincchat.setup.unpack import Contents


def sees_the_card(device: Device) -> bool:
    """True for the faked card: RADV names it by its processor."""
    return faked_card.CARD.upper() in device.name


FAKED_CARD = Bringing(
    contents=Contents(
        ("mesa-vulkan-drivers", "libvulkan1", "mesa-drm-shim"), faked_card.DRIVER, preload=faked_card.SHIM
    ),
    folder=faked_card.folder,
    load=faked_card.load,
    works=sees_the_card,
    download_bytes=77_000_000,
    kept_bytes=200_000_000,
    remove_option="--remove-rdna4",
)


def ensure_faked_card() -> None:
    """Bring the driver where it is missing. Raises SetupError."""
    if faked_card.load() is None:
        bring(FAKED_CARD)


def remove_faked_card() -> bool:
    """Delete the driver; False where there was none. Raises SetupError."""
    present = faked_card.folder().exists()
    if present:
        with staging(data_dir(), "removing the driver") as folder:
            faked_card.folder().rename(folder / "rdna4")
    return present
