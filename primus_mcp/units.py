"""Conversion factors. Inside everything is SI (bytes, seconds, FLOP/s); GB of memory is 2**30 bytes."""

from __future__ import annotations

GIB = 2**30
MIB = 2**20
KIB = 2**10
GB_PER_S = 1e9
TB_PER_S = 1e12
TFLOPS = 1e12
MS_PER_S = 1e3
S_PER_MINUTE = 60
S_PER_HOUR = 3600
S_PER_DAY = 86_400
US = 1e-6
NS = 1e-9
MHZ = 1e6
GHZ = 1e9
BILLION = 1e9
MB = 1e6
"""Of traffic, like GB_PER_S; memory counts in MIB."""
MTOKEN = 1e6
"""What prices are quoted for."""

FP32_BYTES = 4
BF16_BYTES = 2
FP8_BYTES = 1
INT64_BYTES = 8


def bytes_to_gb(size_bytes: float) -> float:
    """Bytes to GB of memory (2**30 bytes)."""
    return size_bytes / GIB


def seconds_to_ms(time_s: float) -> float:
    """Seconds to milliseconds."""
    return time_s * MS_PER_S
