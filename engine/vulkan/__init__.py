"""Vulkan through raw cffi calls: instance, device, memory, pipelines, command buffers, clocks."""
