"""Shape to seconds and bytes: GEMM, attention, element-wise passes, collectives."""
