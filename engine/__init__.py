"""zincchat's engine: headless text generation on Vulkan compute, with the time of every token measured."""

from engine.atomic_file import AtomicFile
from engine.decode import MODES
from engine.decode.sampling import Sampling
from engine.dry_run import SHAPES as DRY_RUN_SHAPES
from engine.dry_run import DryRun, KernelStatistics, RecordedProgram, compile_and_record
from engine.engine import Engine
from engine.errors import Cancelled, EngineError
from engine.info import ModelInfo
from engine.profile.chrome_trace import chrome_trace
from engine.profile.export import export_suffix, export_text
from engine.profile.records import TokenTiming
from engine.profile.timeline import KernelSpan, TokenTrace
from engine.program.fusion import PASSES as FUSION_PASSES
from engine.program.schedule import BARRIERS
from engine.session import PrefillStats, Session, Token
from engine.vulkan.instance import DeviceInfo, list_devices, set_loader_environment

__all__ = [
    "BARRIERS",
    "DRY_RUN_SHAPES",
    "FUSION_PASSES",
    "MODES",
    "AtomicFile",
    "Cancelled",
    "DeviceInfo",
    "DryRun",
    "Engine",
    "EngineError",
    "KernelSpan",
    "KernelStatistics",
    "ModelInfo",
    "PrefillStats",
    "RecordedProgram",
    "Sampling",
    "Session",
    "Token",
    "TokenTiming",
    "TokenTrace",
    "chrome_trace",
    "compile_and_record",
    "export_suffix",
    "export_text",
    "list_devices",
    "set_loader_environment",
]
