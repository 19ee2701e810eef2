"""Compute pipelines made from shaders/*.comp, with what a caller must know to dispatch them."""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from engine import disk_cache
from engine.errors import EngineError
from engine.vulkan.api import NULL, check, ffi, lib
from engine.vulkan.device import Device
from engine.vulkan.shaders import compile_generated, compile_glsl, expand

if TYPE_CHECKING:
    from engine.program.tuning import RowTuning

_ACCESS = "readonly|writeonly|READWRITE|COHERENT|FIXED|AWAITED"
_BUFFER = re.compile(rf"^\s*BUFFER\((\d+),\s*({_ACCESS}),\s*\w+,\s*\w+,\s*(\w+)\)", re.MULTILINE)
_PUSH = re.compile(r"^PUSH_BEGIN$(.*?)^PUSH_END$", re.MULTILINE | re.DOTALL)
_SCALAR = re.compile(r"^\s*(uint|int|float)\s+\w+;", re.MULTILINE)
_FORMATS = {"uint": "I", "int": "i", "float": "f"}
_MAX_PUSH_BYTES = 128  # all that the specification guarantees; some kernels take more with FLAGS and STAMPS
_FLAG_BYTES = 16  # FLAGS_PUSH of shaders/include/flags.glsl
_STAMP_BYTES = 8  # the address of the stamp slots

Defines = dict[str, str | int]


class Kernel:
    """A pipeline. ``pack(*addresses, *scalars)`` makes its push constants.

    ``reads`` and ``writes`` are the binding numbers it reads and writes.
    """

    __slots__ = ("defines", "label", "layout", "name", "pack", "pipeline", "push_bytes", "reads", "writes")

    def __init__(
        self,
        name: str,
        defines: Defines,
        label: str,
        source: str,
        stamped: bool,
        most_push_bytes: int = _MAX_PUSH_BYTES,
    ) -> None:
        self.name, self.defines, self.label = name, defines, label
        buffers = _BUFFER.findall(source)
        if [int(number) for number, _, _ in buffers] != list(range(len(buffers))):
            raise EngineError(f"kernel {label}: its buffers are not numbered from 0 in order")
        push = _PUSH.search(source)
        scalars = _SCALAR.findall(push.group(1)) if push else []
        self.reads = tuple(i for i, (_, access, _) in enumerate(buffers) if access != "writeonly")
        self.writes = tuple(
            i for i, (_, access, _) in enumerate(buffers) if access not in ("readonly", "FIXED", "AWAITED")
        )
        layout = struct.Struct(f"<{len(buffers)}Q" + "".join(_FORMATS[kind] for kind in scalars))
        self.pack: Callable[..., bytes] = layout.pack
        self.push_bytes = layout.size + (_STAMP_BYTES if stamped else 0) + (_FLAG_BYTES if "FLAGS" in defines else 0)
        if self.push_bytes > most_push_bytes:
            raise EngineError(f"kernel {label} needs {self.push_bytes} bytes of push constants of {most_push_bytes}")
        self.layout: Any = None
        self.pipeline: Any = None


class Resident(NamedTuple):
    """The workgroups of the persistent mode's kernel: their invocations, and how many run at the same time."""

    group: int
    workgroups: int


class KernelSet(Protocol):
    """Where the lowering finds kernels. ``resident`` is None where each op is a dispatch of its own.

    ``tuning``: how rows are divided where it is not as usual.
    """

    device: Device
    base: Defines
    resident: Resident | None
    tuning: RowTuning | None

    def get(self, name: str, defines: Defines | None = None) -> Kernel:
        """The kernel of shaders/NAME.comp with ``defines``."""


class Retuned:
    """The kernels of a set, with another ``tuning``."""

    def __init__(self, kernels: KernelSet, tuning: RowTuning | None) -> None:
        self._kernels, self.tuning = kernels, tuning
        self.device, self.base, self.resident = kernels.device, kernels.base, kernels.resident

    def get(self, name: str, defines: Defines | None = None) -> Kernel:
        """See KernelSet."""
        return self._kernels.get(name, defines)


class Kernels:
    """All pipelines of one device, made on first use and kept.

    ``base`` defines go into every kernel. ``get`` returns the same Kernel for the same name and defines;
    ``get(..., stamped=True)`` its twin whose push constants begin with the address of its stamp slots. What is built is
    kept on disk too, unless ``keep`` is False.
    """

    resident: Resident | None = None

    def __init__(self, device: Device, keep: bool = True) -> None:
        self.device = device
        self.tuning: RowTuning | None = None
        self._keep = keep
        self.base: Defines = {"SUBGROUP_SIZE": device.subgroup_size}
        if device.row_kernels:
            self.base["CPU_DEVICE"] = 1
        elif "shaderIntegerDotProduct" not in device.features:
            self.base["NO_INTEGER_DOT"] = 1
        if device.binding == "descriptors":
            self.base["DESCRIPTORS"] = 1
        self._kernels: dict[tuple[Any, ...], Kernel] = {}
        self._layouts: dict[tuple[int, int], tuple[Any, Any]] = {}
        self._lock = Lock()
        self._cache_path = disk_cache.cache_file("pipelines", f"{device.cache_key}.bin")
        self._cache, self._cached_bytes = self._open_cache()

    def get(self, name: str, defines: Defines | None = None, stamped: bool = False) -> Kernel:
        """The kernel of shaders/NAME.comp built with ``defines``. Raise EngineError if it does not compile.

        Any thread may ask: where several build the same kernel, one of them is kept, and the same for all.
        """
        key = (name, stamped, *sorted(defines.items())) if defines else (name, stamped)
        kernel = self._kernels.get(key)
        if kernel is None:
            built = self._build(name, defines or {}, stamped)
            with self._lock:
                kernel = self._kernels.setdefault(key, built)
            if kernel is not built:
                lib.vkDestroyPipeline(self.device.handle, built.pipeline, NULL)
        return kernel

    def twin(self, kernel: Kernel) -> Kernel:
        """The stamped twin of a kernel: the same code, which also notes when it ran."""
        return self.get(kernel.name, kernel.defines, stamped=True)

    def null_twin(self, kernel: Kernel) -> Kernel:
        """The null twin of a kernel: the same code, which returns at once when its stamp address is 0."""
        return self.get(kernel.name, {**kernel.defines, "NULL_TWIN": 1}, stamped=True)

    def prepare(self, wanted: Iterable[tuple[str, Defines, bool]], done: Callable[[], None]) -> None:
        """Build many (name, defines, stamped) on several threads; ``done`` is called for each, there already or not."""
        with ThreadPoolExecutor(min(8, os.cpu_count() or 2)) as pool:
            for _ in pool.map(lambda job: self.get(*job), wanted):
                done()

    def of_source(self, label: str, source: Callable[[], str], key: str, push_bytes: int) -> Kernel:
        """The kernel of a generated source, which takes addresses in ``push_bytes`` of push constants.

        ``source`` is only asked for where the disk cache has nothing for ``key``, which must name all it depends on.
        """
        kernel = self._kernels.get((label, key))
        if kernel is None:
            kernel = Kernel(label, {}, label, "", stamped=False)
            kernel.push_bytes = push_bytes
            code = compile_generated(source, key, label)
            kernel.layout = self._layout(push_bytes, 0)
            kernel.pipeline = self._pipeline(code, kernel, fixed_subgroup=True)
            self._kernels[label, key] = kernel
        return kernel

    def save_cache(self) -> None:
        """Write the driver's pipeline cache to disk if it grew."""
        size = ffi.new("size_t*")
        lib.vkGetPipelineCacheData(self.device.handle, self._cache, size, NULL)
        if size[0] <= self._cached_bytes:
            return
        data = ffi.new("char[]", size[0])
        if lib.vkGetPipelineCacheData(self.device.handle, self._cache, size, data) == 0:
            disk_cache.store(self._cache_path, ffi.buffer(data, size[0])[:])
            self._cached_bytes = size[0]

    def close(self) -> None:
        """Destroy all pipelines; the device must be idle."""
        if self._keep:
            self.save_cache()
        handle = self.device.handle
        for kernel in self._kernels.values():
            lib.vkDestroyPipeline(handle, kernel.pipeline, NULL)
        for layout, set_layout in self._layouts.values():
            lib.vkDestroyPipelineLayout(handle, layout, NULL)
            if set_layout != NULL:
                lib.vkDestroyDescriptorSetLayout(handle, set_layout, NULL)
        lib.vkDestroyPipelineCache(handle, self._cache, NULL)
        self._kernels.clear()
        self._layouts.clear()

    def _open_cache(self) -> tuple[Any, int]:
        data = disk_cache.load(self._cache_path) or b""
        initial = ffi.from_buffer(data)
        create = ffi.new(
            "VkPipelineCacheCreateInfo*", {"sType": 17, "initialDataSize": len(data), "pInitialData": initial}
        )
        cache = ffi.new("VkPipelineCache*")
        check(lib.vkCreatePipelineCache(self.device.handle, create, NULL, cache), "creating the pipeline cache")
        return cache[0], len(data)

    def _build(self, name: str, defines: Defines, stamped: bool) -> Kernel:
        merged = {**self.base, **defines, **({"STAMPS": 1} if stamped else {})}
        pairs = tuple((key, str(value)) for key, value in sorted(merged.items()))
        label = name + "".join(f" {key}={value}" for key, value in sorted(defines.items()))
        source = expand(name, pairs)
        most_push_bytes = _MAX_PUSH_BYTES
        if "FLAGS" in defines:  # a kernel that waits is not to be had without its stamped twin
            most_push_bytes = self.device.most_push_bytes - (0 if stamped else _STAMP_BYTES)
        kernel = Kernel(name, defines, label, source, stamped, most_push_bytes)
        code = compile_glsl(source, label)
        buffers = len(set(kernel.reads) | set(kernel.writes))
        kernel.layout = self._layout(kernel.push_bytes, buffers if self.device.binding == "descriptors" else 0)
        kernel.pipeline = self._pipeline(code, kernel, "SUBGROUP_SIZE" in source.split("\n", len(pairs) + 1)[-1])
        return kernel

    def _layout(self, push_bytes: int, descriptors: int) -> Any:
        with self._lock:
            known = self._layouts.get((push_bytes, descriptors))
            if known is not None:
                return known[0]
            set_layout = self._set_layout(descriptors) if descriptors else NULL
            sets = ffi.new("VkDescriptorSetLayout[]", [set_layout])
            ranges = ffi.new("VkPushConstantRange*", {"stageFlags": 0x20, "offset": 0, "size": push_bytes})
            create = ffi.new(
                "VkPipelineLayoutCreateInfo*",
                {
                    "sType": 30,
                    "setLayoutCount": 1 if descriptors else 0,
                    "pSetLayouts": sets,
                    "pushConstantRangeCount": 1 if push_bytes else 0,
                    "pPushConstantRanges": ranges,
                },
            )
            layout = ffi.new("VkPipelineLayout*")
            check(lib.vkCreatePipelineLayout(self.device.handle, create, NULL, layout), "creating a pipeline layout")
            self._layouts[push_bytes, descriptors] = (layout[0], set_layout)
            return layout[0]

    def _set_layout(self, count: int) -> Any:
        bindings = ffi.new("VkDescriptorSetLayoutBinding[]", count)
        for index in range(count):
            bindings[index].binding, bindings[index].descriptorType = index, 7  # STORAGE_BUFFER
            bindings[index].descriptorCount, bindings[index].stageFlags = 1, 0x20
        create = ffi.new(
            "VkDescriptorSetLayoutCreateInfo*",
            {"sType": 32, "flags": 1, "bindingCount": count, "pBindings": bindings},  # PUSH_DESCRIPTOR
        )
        layout = ffi.new("VkDescriptorSetLayout*")
        check(lib.vkCreateDescriptorSetLayout(self.device.handle, create, NULL, layout), "creating a set layout")
        return layout[0]

    def _pipeline(self, code: bytes, kernel: Kernel, fixed_subgroup: bool) -> Any:
        handle = self.device.handle
        words = ffi.new("uint32_t[]", len(code) // 4)
        ffi.memmove(words, code, len(code))
        module_info = ffi.new("VkShaderModuleCreateInfo*", {"sType": 16, "codeSize": len(code), "pCode": words})
        module = ffi.new("VkShaderModule*")
        check(lib.vkCreateShaderModule(handle, module_info, NULL, module), f"loading kernel {kernel.label}")
        entry = ffi.new("char[]", b"main")
        size = ffi.new(
            "VkPipelineShaderStageRequiredSubgroupSizeCreateInfo*",
            {"sType": 1000225001, "requiredSubgroupSize": self.device.subgroup_size},
        )
        create = ffi.new("VkComputePipelineCreateInfo*")
        create.sType, create.layout, create.basePipelineIndex = 29, kernel.layout, -1
        create.flags = 0x40 if self.device.keeps_statistics else 0  # CAPTURE_STATISTICS
        stage = create.stage
        stage.sType, stage.stage, stage.module, stage.pName = 18, 0x20, module[0], entry
        if fixed_subgroup and "subgroupSizeControl" in self.device.features and not self.device.is_cpu:
            stage.pNext = size
            stage.flags = 2 if "computeFullSubgroups" in self.device.features else 0  # REQUIRE_FULL_SUBGROUPS
        pipeline = ffi.new("VkPipeline*")
        result = lib.vkCreateComputePipelines(handle, self._cache, 1, create, NULL, pipeline)
        lib.vkDestroyShaderModule(handle, module[0], NULL)
        check(result, f"building kernel {kernel.label}")
        return pipeline[0]
