# Pretty-printers of gdb for lockstep's Shape and Tensor: `print x` says type, shape, device and the first values.
#   gdb -x scripts/lockstep-gdb.py --args build/cpu-release/bin/lockstep train FILE.yaml
# gdb runs this file in its own Python. Values are read from host memory; of a GPU's tensors none are shown.
import struct

import gdb
import gdb.printing

DTYPES = {  # as core/base/dtype.h has them: name, bytes of an element, code of struct (None: bfloat16)
    "kFloat32": ("fp32", 4, "f"), "kBFloat16": ("bf16", 2, None), "kFloat16": ("fp16", 2, "e"), "kFloat64": ("fp64", 8, "d"),
    "kInt64": ("int64", 8, "q"), "kInt32": ("int32", 4, "i"), "kUInt8": ("uint8", 1, "B")}
MOST_VALUES = 8


def extents(shape):
    rank = int(shape["rank_"])
    return [int(shape["extents_"][i]) for i in range(max(0, min(rank, 16)))]


class ShapePrinter:
    def __init__(self, value):
        self.value = value

    def to_string(self):
        return "[" + ", ".join(str(e) for e in extents(self.value)) + "]"


class TensorPrinter:
    def __init__(self, value):
        self.value = value

    # The first elements in the order of the shape, whatever the strides are.
    def elements(self, size, code):
        storage = self.value["storage_"]["_M_ptr"].dereference()
        base = int(storage["data_"]) + int(self.value["offset_"]) * size
        shape, strides = extents(self.value["shape_"]), extents(self.value["strides_"])
        count = 1
        for e in shape:
            count *= e
        out = []
        for n in range(min(count, MOST_VALUES)):
            at, rest = 0, n
            for e, stride in zip(reversed(shape), reversed(strides)):
                at += (rest % e) * stride
                rest //= e
            raw = gdb.selected_inferior().read_memory(base + at * size, size).tobytes()
            if code is None:
                raw, element = b"\0\0" + raw, "f"
            else:
                element = code
            out.append("%.6g" % struct.unpack("<" + element, raw)[0])
        return ", ".join(out) + (", ..." if count > MOST_VALUES else "")

    def to_string(self):
        if int(self.value["storage_"]["_M_ptr"]) == 0:
            return "undefined tensor"
        name, size, code = DTYPES.get(str(self.value["dtype_"]).split("::")[-1], ("?", 0, None))
        text = name + "[" + ", ".join(str(e) for e in extents(self.value["shape_"])) + "]"
        storage = self.value["storage_"]["_M_ptr"].dereference()
        device = str(storage["device_"]["type"]).split("::")[-1]
        if device not in ("kCpu", "kAsyncCpu"):
            return text + " on " + device.lstrip("k").lower()
        if int(storage["data_"]) == 0:
            return text + " without memory"
        try:
            return text + " {" + self.elements(size, code) + "}"
        except gdb.MemoryError:
            return text + " {its memory cannot be read}"


printers = gdb.printing.RegexpCollectionPrettyPrinter("lockstep")
printers.add_printer("Shape", "^lockstep::Shape$", ShapePrinter)
printers.add_printer("Tensor", "^lockstep::Tensor$", TensorPrinter)
gdb.printing.register_pretty_printer(None, printers, replace=True)
