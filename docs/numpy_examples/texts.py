"""Examples of texts and files made of arrays."""

from __future__ import annotations

EXAMPLES: dict[str, tuple[str, ...]] = {
    "np.array2string": ("np.array2string(x)", "np.array2string(x, precision=2)"),
    "np.array_repr": ("len(np.array_repr(x)) > 9",),
    "np.array_str": ("np.array_str(x)",),
    "np.format_float_positional": ("np.format_float_positional(np.sum(i))",),
    "np.format_float_scientific": ("np.format_float_scientific(np.sum(i))",),
    "np.save": ("np.save(file, x)",),
    "np.savez": ("np.savez(file, x)",),
    "np.savez_compressed": ("np.savez_compressed(file, x)",),
    "np.savetxt": ("np.savetxt(file, x)",),
}
