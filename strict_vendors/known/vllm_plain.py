"""vLLM as it is started by its name alone: no parser of calls, thoughts in the text, and an older release's paths."""

from strict_vendors.known.vllm import Plain

VENDOR = Plain
