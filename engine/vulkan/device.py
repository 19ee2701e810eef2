"""A logical device with one compute queue, and the facts kernels are chosen by."""

from __future__ import annotations

from typing import Any

from engine.errors import EngineError
from engine.vulkan.api import NULL, check, ffi, lib
from engine.vulkan.calibration import open_calibration
from engine.vulkan.cooperative_matrix import largest_fitting, matrix_sizes
from engine.vulkan.instance import Instance, extensions_of

_COMPUTE = 2
# (structure, sType, feature): what the engine cannot do without
_REQUIRED = (
    ("v11", "storageBuffer16BitAccess"),
    ("v12", "bufferDeviceAddress"),
    ("v12", "hostQueryReset"),
)
_OPTIONAL = (
    ("v10", "shaderInt16"),
    ("v10", "shaderInt64"),
    ("v12", "shaderFloat16"),
    ("v12", "shaderInt8"),
    ("v12", "storageBuffer8BitAccess"),
    ("v12", "vulkanMemoryModel"),
    ("v12", "vulkanMemoryModelDeviceScope"),
    ("v13", "subgroupSizeControl"),
    ("v13", "computeFullSubgroups"),
    ("v13", "shaderIntegerDotProduct"),
    ("clock", "shaderDeviceClock"),
    ("clock", "shaderSubgroupClock"),
    ("executables", "pipelineExecutableInfo"),
    ("matrices", "cooperativeMatrix"),
    ("workgroup_memory", "workgroupMemoryExplicitLayout"),
)
_MATRICES_EXTENSION = "VK_KHR_cooperative_matrix"
_WORKGROUP_MEMORY_EXTENSION = "VK_KHR_workgroup_memory_explicit_layout"
_STATISTICS_EXTENSION = "VK_KHR_pipeline_executable_properties"
_EXTENSIONS = (
    "VK_KHR_shader_clock",
    "VK_KHR_push_descriptor",
    "VK_EXT_calibrated_timestamps",
    "VK_KHR_calibrated_timestamps",
    "VK_EXT_memory_budget",
    _WORKGROUP_MEMORY_EXTENSION,
)
_NVIDIA_PROPRIETARY = 4  # VK_DRIVER_ID


class Device:
    """A VkDevice with its compute queue.

    ``binding`` is "addresses" (kernels take buffer addresses in push constants) or "descriptors" (the
    same kernels built with push descriptors, which the validation layer can follow). ``statistics`` keeps what
    the compiler found out about each kernel, for ``engine.vulkan.executables``, where the driver offers it.
    """

    def __init__(
        self,
        instance: Instance,
        wanted: str | int | None = None,
        binding: str = "addresses",
        statistics: bool = False,
        row_kernels: bool | None = None,
    ) -> None:
        """Raise EngineError where no device fits or a needed feature is missing.

        ``row_kernels`` None takes the kernels made for software devices on those, and a GPU's elsewhere.
        """
        self.instance = instance
        self.binding = binding
        self.info, self.physical = instance.choose(wanted)
        self.row_kernels = self.info.is_software if row_kernels is None else row_kernels
        self.extensions = extensions_of(self.physical)
        if not statistics:
            self.extensions.discard(_STATISTICS_EXTENSION)
        self.features: set[str] = set()
        chain, structures = self._feature_chain()
        lib.vkGetPhysicalDeviceFeatures2(self.physical, chain)
        self._select_features(structures)
        self._read_properties()
        self.matrix_sizes = matrix_sizes(instance, self.physical, self.features)
        self.matrix_size = largest_fitting(self.matrix_sizes)
        self.queue_family, self.timestamp_bits = self._choose_family()
        priority = ffi.new("float[]", [1.0])
        queue = ffi.new(
            "VkDeviceQueueCreateInfo*",
            {"sType": 2, "queueFamilyIndex": self.queue_family, "queueCount": 1, "pQueuePriorities": priority},
        )
        enabled = (*_EXTENSIONS, _STATISTICS_EXTENSION, _MATRICES_EXTENSION)
        names = [ffi.new("char[]", name.encode()) for name in enabled if name in self.extensions]
        if binding == "descriptors" and "VK_KHR_push_descriptor" not in self.extensions:
            raise EngineError(f"{self.info.name} has no push descriptors, which the descriptor build needs")
        name_array = ffi.new("char*[]", names)
        create = ffi.new(
            "VkDeviceCreateInfo*",
            {
                "sType": 3,
                "pNext": chain,
                "queueCreateInfoCount": 1,
                "pQueueCreateInfos": queue,
                "enabledExtensionCount": len(names),
                "ppEnabledExtensionNames": name_array,
            },
        )
        handle = ffi.new("VkDevice*")
        check(lib.vkCreateDevice(self.physical, create, NULL, handle), f"opening {self.info.name}")
        self.handle = handle[0]
        queue_handle = ffi.new("VkQueue*")
        lib.vkGetDeviceQueue(self.handle, self.queue_family, 0, queue_handle)
        self.queue = queue_handle[0]
        self._first_ticks: int | None = None
        self.calibration = open_calibration(self)

    @property
    def is_cpu(self) -> bool:
        """True on a software device: its "GPU" is this machine's CPU."""
        return self.info.is_software

    @property
    def has_kernel_clock(self) -> bool:
        """True where a kernel can read the device clock (VK_KHR_shader_clock, device scope)."""
        return "shaderDeviceClock" in self.features

    @property
    def keeps_statistics(self) -> bool:
        """True where kernels are built so that their compile statistics can be read."""
        return "pipelineExecutableInfo" in self.features

    def timestamp_ns(self, ticks: int) -> float:
        """Nanoseconds of a timestamp after the first one seen: as a float, the device's own epoch costs precision."""
        if self._first_ticks is None:
            self._first_ticks = ticks
        return ((ticks - self._first_ticks) & ((1 << self.timestamp_bits) - 1)) * self.timestamp_period_ns

    def wait_idle(self) -> None:
        """Block until the queue has finished everything."""
        check(lib.vkDeviceWaitIdle(self.handle), "waiting for the device")

    def close(self) -> None:
        """Destroy the device; everything made from it must be gone."""
        lib.vkDestroyDevice(self.handle, NULL)

    def _feature_chain(self) -> tuple[Any, dict[str, Any]]:
        clock = ffi.new("VkPhysicalDeviceShaderClockFeaturesKHR*", {"sType": 1000181000})
        v13 = ffi.new("VkPhysicalDeviceVulkan13Features*", {"sType": 53})
        v12 = ffi.new("VkPhysicalDeviceVulkan12Features*", {"sType": 51, "pNext": v13})
        v11 = ffi.new("VkPhysicalDeviceVulkan11Features*", {"sType": 49, "pNext": v12})
        v10 = ffi.new("VkPhysicalDeviceFeatures2*", {"sType": 1000059000, "pNext": v11})
        executables = ffi.new("VkPhysicalDevicePipelineExecutablePropertiesFeaturesKHR*", {"sType": 1000269000})
        matrices = ffi.new("VkPhysicalDeviceCooperativeMatrixFeaturesKHR*", {"sType": 1000506000})
        workgroup_memory = ffi.new("VkPhysicalDeviceWorkgroupMemoryExplicitLayoutFeaturesKHR*", {"sType": 1000336000})
        last = v13
        for extension, structure in (
            ("VK_KHR_shader_clock", clock),
            (_STATISTICS_EXTENSION, executables),
            (_MATRICES_EXTENSION, matrices),
            (_WORKGROUP_MEMORY_EXTENSION, workgroup_memory),
        ):
            if extension in self.extensions:
                last.pNext = structure
                last = structure
        parts = {"v10": v10.features, "v11": v11, "v12": v12, "v13": v13, "clock": clock, "executables": executables}
        return v10, {**parts, "matrices": matrices, "workgroup_memory": workgroup_memory}

    def _select_features(self, structures: dict[str, Any]) -> None:
        """Note what the device offers, then leave only the wanted features enabled in the chain."""
        wanted = _REQUIRED + _OPTIONAL
        self.features = {name for part, name in wanted if getattr(structures[part], name)}
        missing = [name for _, name in _REQUIRED if name not in self.features]
        if missing:
            raise EngineError(
                f"{self.info.name} lacks {', '.join(missing)}: a newer driver may offer it, or try --device"
            )
        for part, structure in structures.items():
            enabled = {name for owner, name in wanted if owner == part and name in self.features}
            for name, _ in ffi.typeof(structure[0] if part != "v10" else structure).fields:
                if name not in ("sType", "pNext"):
                    setattr(structure, name, int(name in enabled))

    def _read_properties(self) -> None:
        control = ffi.new("VkPhysicalDeviceSubgroupSizeControlProperties*", {"sType": 1000225000})
        driver = ffi.new("VkPhysicalDeviceDriverProperties*", {"sType": 1000196000, "pNext": control})
        v13 = ffi.new("VkPhysicalDeviceVulkan13Properties*", {"sType": 54, "pNext": driver})
        v11 = ffi.new("VkPhysicalDeviceVulkan11Properties*", {"sType": 50, "pNext": v13})
        properties = ffi.new("VkPhysicalDeviceProperties2*", {"sType": 1000059001, "pNext": v11})
        lib.vkGetPhysicalDeviceProperties2(self.physical, properties)
        limits = properties.properties.limits
        self.subgroup_size: int = v11.subgroupSize
        self.subgroup_sizes = (control.minSubgroupSize, control.maxSubgroupSize)
        # llvmpipe runs a loop's body once more with all lanes masked, and loads what is the same for all lanes
        # regardless: so a kernel reads a step beyond a row's last block or a cache's last key, and where no memory
        # follows the process dies
        self.overread_bytes = 64 << 10 if self.is_cpu else 0
        self.max_allocation_bytes: int = min(v11.maxMemoryAllocationSize, v13.maxBufferSize) - self.overread_bytes
        self.max_storage_range_bytes: int = limits.maxStorageBufferRange
        self.timestamp_period_ns: float = limits.timestampPeriod
        self.most_invocations: int = min(limits.maxComputeWorkGroupInvocations, limits.maxComputeWorkGroupSize[0])
        self.most_push_bytes: int = limits.maxPushConstantsSize
        self.shared_bytes: int = limits.maxComputeSharedMemorySize
        # PTX's memory model: a barrier of the workgroup (bar.sync) orders all accesses of memory before and behind it.
        # Mesa's compiler for the same GPUs promises nothing of that kind.
        self.barriers_order_memory: bool = driver.driverID == _NVIDIA_PROPRIETARY
        self.cache_key = bytes(properties.properties.pipelineCacheUUID).hex()
        self.multiprocessors: int | None = None  # where the driver tells
        if "VK_NV_shader_sm_builtins" in self.extensions:
            builtins = ffi.new("VkPhysicalDeviceShaderSMBuiltinsPropertiesNV*", {"sType": 1000154001})
            asked = ffi.new("VkPhysicalDeviceProperties2*", {"sType": 1000059001, "pNext": builtins})
            lib.vkGetPhysicalDeviceProperties2(self.physical, asked)
            self.multiprocessors = builtins.shaderSMCount

    @property
    def most_slice_bytes(self) -> int:
        """The largest piece of memory that one buffer, and with descriptors one binding, of a kernel can be."""
        if self.binding == "descriptors":
            return min(self.max_allocation_bytes, self.max_storage_range_bytes)
        return self.max_allocation_bytes

    def _choose_family(self) -> tuple[int, int]:
        count = ffi.new("uint32_t*")
        lib.vkGetPhysicalDeviceQueueFamilyProperties(self.physical, count, NULL)
        families = ffi.new("VkQueueFamilyProperties[]", count[0])
        lib.vkGetPhysicalDeviceQueueFamilyProperties(self.physical, count, families)
        for index, family in enumerate(families):
            if family.queueFlags & _COMPUTE and family.timestampValidBits:
                return index, family.timestampValidBits
        raise EngineError(f"{self.info.name} has no compute queue with timestamps: try --device")
