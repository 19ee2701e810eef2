"""zincchat's engine: headless text generation on Vulkan compute, with the time of every token measured."""
