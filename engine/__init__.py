"""zincchat's engine: headless text generation on Vulkan compute, with the time of every token measured."""

from engine.atomic_file import AtomicFile
from engine.decode import MODES
from engine.decode.sampling import Sampling
from engine.dry_run import SHAPES as DRY_RUN_SHAPES
from engine.dry_run import DryRun, KernelStatistics, RecordedProgram, compile_and_record
from engine.engine import Engine
from engine.errors import Cancelled, EngineError
from engine.fit import DeviceRoom, ModelOnDisk, device_room, inspect_model
from engine.info import ModelInfo
from engine.profile.article import PieceRow, RemedyRow, RunMedians, RunSettings, piece_rows, remedy_rows
from engine.profile.bubble_report import BubbleReport, starved_us
from engine.profile.chrome_trace import chrome_trace
from engine.profile.export import export_suffix, export_text
from engine.profile.instruments import SubmitHint
from engine.profile.interleave import median_error
from engine.profile.kernel_rates import KernelRate, kernel_rates
from engine.profile.native_record import native_record_us
from engine.profile.records import TokenTiming
from engine.profile.timeline import KernelSpan, TokenTrace
from engine.profile.traffic import floor_fraction, floor_tok_s
from engine.profile.verdict import Verdict, verdict
from engine.profile.waiting import loads_ahead, waits_in_memory
from engine.program.fusion import PASSES as FUSION_PASSES
from engine.program.schedule import BARRIERS
from engine.row_tuner import Tuning
from engine.session import PrefillStats, Session, Token
from engine.vulkan.instance import DeviceInfo, list_devices, set_loader_environment
from engine.weights.quantise import QUANTISATIONS

__all__ = [
    "BARRIERS",
    "DRY_RUN_SHAPES",
    "FUSION_PASSES",
    "MODES",
    "QUANTISATIONS",
    "AtomicFile",
    "BubbleReport",
    "Cancelled",
    "DeviceInfo",
    "DeviceRoom",
    "DryRun",
    "Engine",
    "EngineError",
    "KernelRate",
    "KernelSpan",
    "KernelStatistics",
    "ModelInfo",
    "ModelOnDisk",
    "PieceRow",
    "PrefillStats",
    "RecordedProgram",
    "RemedyRow",
    "RunMedians",
    "RunSettings",
    "Sampling",
    "Session",
    "SubmitHint",
    "Token",
    "TokenTiming",
    "TokenTrace",
    "Tuning",
    "Verdict",
    "chrome_trace",
    "compile_and_record",
    "device_room",
    "export_suffix",
    "export_text",
    "floor_fraction",
    "floor_tok_s",
    "inspect_model",
    "kernel_rates",
    "list_devices",
    "loads_ahead",
    "median_error",
    "native_record_us",
    "piece_rows",
    "remedy_rows",
    "set_loader_environment",
    "starved_us",
    "verdict",
    "waits_in_memory",
]
