"""The Vulkan instance, its validation messages, and what devices there are."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from engine.errors import EngineError
from engine.vulkan.api import NULL, check, ffi, instance_function, lib, require_loader

API_VERSION = (1 << 22) | (3 << 12)
KINDS = {0: "other", 1: "integrated", 2: "discrete", 3: "virtual", 4: "cpu"}
_PREFERENCE = {"discrete": 0, "integrated": 1, "virtual": 2, "other": 3, "cpu": 4}
_VALIDATION_LAYER = "VK_LAYER_KHRONOS_validation"

# Newer layers follow what a shader touches only where they are asked to; older ones always do.
_VALIDATION_SETTINGS = {
    "VK_KHRONOS_VALIDATION_VALIDATE_SYNC": "1",
    "VK_KHRONOS_VALIDATION_SYNCVAL_SHADER_ACCESSES_HEURISTIC": "1",
    "VK_KHRONOS_VALIDATION_ENABLE_MESSAGE_LIMIT": "0",
}

_loader_environment: dict[str, str] = {}


def set_loader_environment(variables: dict[str, str]) -> None:
    """Environment variables for the Vulkan loader (VK_DRIVER_FILES, VK_ADD_LAYER_PATH, ...).

    They are set only while an instance is created, so child programs never inherit the choice of driver.
    """
    _loader_environment.clear()
    _loader_environment.update(variables)


@dataclass(frozen=True, slots=True)
class DeviceInfo:
    """One physical device as a user would name it."""

    index: int
    name: str
    kind: str  # discrete, integrated, virtual, cpu or other
    driver: str  # name and version
    api_version: str
    memory_bytes: int  # the largest device-local heap

    @property
    def is_software(self) -> bool:
        """True where the "GPU" is this machine's CPU."""
        return self.kind == "cpu"


class Instance:
    """A VkInstance. With ``validation`` the Khronos layer checks it, synchronisation included.

    Attributes: ``messages``, the layer's warnings and errors so far, one string each.
    """

    def __init__(self, validation: bool = False) -> None:
        """Raise EngineError where there is no loader, no driver, or (``validation``) no layer."""
        require_loader()
        self.messages: list[str] = []
        self._keep: list[Any] = []
        application = ffi.new("VkApplicationInfo*", {"sType": 0, "apiVersion": API_VERSION})
        create = ffi.new("VkInstanceCreateInfo*", {"sType": 1, "pApplicationInfo": application})
        variables = dict(_loader_environment)
        if validation:
            variables |= _VALIDATION_SETTINGS
            self._add_validation(create)
        handle = ffi.new("VkInstance*")
        saved = {name: os.environ.get(name) for name in variables}
        os.environ.update(variables)
        try:
            result = lib.vkCreateInstance(create, NULL, handle)
        finally:
            for name, value in saved.items():
                if value is None:
                    del os.environ[name]
                else:
                    os.environ[name] = value
        if result == -6 and validation:
            raise EngineError(f"the validation layer ({_VALIDATION_LAYER}) is not installed")
        if result == -9:
            raise EngineError("no Vulkan driver was found: run 'make setup', or install mesa-vulkan-drivers")
        check(result, "creating the Vulkan instance")
        self.handle = handle[0]
        if validation:
            create_messenger = instance_function(self.handle, "vkCreateDebugUtilsMessengerEXT")
            messenger = ffi.new("VkDebugUtilsMessengerEXT*")
            check(create_messenger(self.handle, self._messenger_info, NULL, messenger), "creating the messenger")
            self._messenger = messenger[0]
        self._validation = validation

    def _add_validation(self, create: Any) -> None:
        layer = ffi.new("char[]", _VALIDATION_LAYER.encode())
        layers = ffi.new("char*[]", [layer])
        extensions_ = [ffi.new("char[]", b"VK_EXT_debug_utils"), ffi.new("char[]", b"VK_EXT_validation_features")]
        extensions = ffi.new("char*[]", extensions_)
        create.enabledLayerCount, create.ppEnabledLayerNames = 1, layers
        create.enabledExtensionCount, create.ppEnabledExtensionNames = len(extensions_), extensions

        def receive(severity: int, _types: int, data: Any, _user: Any) -> int:
            if severity >= 0x100:  # warnings and errors
                self.messages.append(f"{_string(data.pMessageIdName)}: {_string(data.pMessage)}")
            return 0

        callback = ffi.callback("PFN_vkDebugUtilsMessengerCallbackEXT", receive)
        self._messenger_info = ffi.new(
            "VkDebugUtilsMessengerCreateInfoEXT*",
            {"sType": 1000128004, "messageSeverity": 0x1100, "messageType": 7, "pfnUserCallback": callback},
        )
        enable = ffi.new("VkValidationFeatureEnableEXT[]", [4])  # SYNCHRONIZATION_VALIDATION
        features = ffi.new(
            "VkValidationFeaturesEXT*",
            {"sType": 1000247000, "enabledValidationFeatureCount": 1, "pEnabledValidationFeatures": enable},
        )
        create.pNext = features
        self._keep += [layer, layers, extensions_, extensions, callback, enable, features]

    def physical_devices(self) -> list[tuple[DeviceInfo, Any]]:
        """Every device with its handle, in the loader's order."""
        count = ffi.new("uint32_t*")
        check(lib.vkEnumeratePhysicalDevices(self.handle, count, NULL), "listing the Vulkan devices")
        handles = ffi.new("VkPhysicalDevice[]", count[0])
        check(lib.vkEnumeratePhysicalDevices(self.handle, count, handles), "listing the Vulkan devices")
        return [(describe(index, handle), handle) for index, handle in enumerate(handles)]

    def choose(self, wanted: str | int | None) -> tuple[DeviceInfo, Any]:
        """The device with index or name part ``wanted``; None takes a discrete GPU before others.

        Raise EngineError that lists the devices where none fits.
        """
        devices = self.physical_devices()
        if not devices:
            raise EngineError("no Vulkan device was found: run 'make setup', or install mesa-vulkan-drivers")
        if wanted is None:
            return min(devices, key=lambda device: (_PREFERENCE[device[0].kind], device[0].index))
        text = str(wanted)
        for device in devices:
            if text == str(device[0].index) or (not text.isdigit() and text.lower() in device[0].name.lower()):
                return device
        listing = ", ".join(f"{info.index}: {info.name}" for info, _ in devices)
        raise EngineError(f"no device matches {text!r}; there is {listing}")

    def close(self) -> None:
        """Destroy the instance; its devices must be gone."""
        if self._validation:
            instance_function(self.handle, "vkDestroyDebugUtilsMessengerEXT")(self.handle, self._messenger, NULL)
        lib.vkDestroyInstance(self.handle, NULL)


def describe(index: int, physical: Any) -> DeviceInfo:
    """DeviceInfo of a VkPhysicalDevice."""
    driver = ffi.new("VkPhysicalDeviceDriverProperties*", {"sType": 1000196000})
    properties = ffi.new("VkPhysicalDeviceProperties2*", {"sType": 1000059001, "pNext": driver})
    lib.vkGetPhysicalDeviceProperties2(physical, properties)
    memory = ffi.new("VkPhysicalDeviceMemoryProperties*")
    lib.vkGetPhysicalDeviceMemoryProperties(physical, memory)
    basic = properties.properties
    local = [memory.memoryHeaps[i].size for i in range(memory.memoryHeapCount) if memory.memoryHeaps[i].flags & 1]
    version = basic.apiVersion
    return DeviceInfo(
        index=index,
        name=ffi.string(basic.deviceName).decode(errors="replace"),
        kind=KINDS.get(basic.deviceType, "other"),
        driver=f"{_string(driver.driverName)} {_string(driver.driverInfo)}".strip(),
        api_version=f"{version >> 22}.{(version >> 12) & 0x3FF}.{version & 0xFFF}",
        memory_bytes=max(local, default=0),
    )


def extensions_of(physical: Any) -> set[str]:
    """The device extensions that a VkPhysicalDevice offers."""
    count = ffi.new("uint32_t*")
    check(lib.vkEnumerateDeviceExtensionProperties(physical, NULL, count, NULL), "listing extensions")
    found = ffi.new("VkExtensionProperties[]", count[0])
    check(lib.vkEnumerateDeviceExtensionProperties(physical, NULL, count, found), "listing extensions")
    return {str(ffi.string(item.extensionName).decode()) for item in found}


def _string(chars: Any) -> str:
    return "" if chars == NULL else str(ffi.string(chars).decode(errors="replace"))


def list_devices() -> list[DeviceInfo]:
    """Every Vulkan device of this machine. Raise EngineError where there is no loader or no driver."""
    instance = Instance()
    try:
        return [info for info, _ in instance.physical_devices()]
    finally:
        instance.close()
