"""What a fresh machine needs before the first chat: environment, model, Vulkan driver."""
