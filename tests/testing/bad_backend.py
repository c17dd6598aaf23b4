"""A compiler with every disease: what it does to a program depends on the ops that it finds there."""

import ctypes
import time

from flambeau.testing.backends import IreeBackend


class Backend(IreeBackend):
    name = "bad"
    targets = ("linalg-on-tensors",)

    def compile(self, module):
        text = str(module)
        if "math.exp2" in text:
            ctypes.string_at(0)
        if "math.sin" in text:
            time.sleep(600)
        if "math.cos" in text:
            eaten = []
            while len(eaten) < 64:  # 4 GiB, if nobody ends it before
                eaten.append(b"x" * (64 << 20))
                time.sleep(0.005)
            time.sleep(600)
        if "math.tanh" in text:
            raise RuntimeError("no hyperbolic functions on this chip")
        return super().compile(module)

    def run(self, artefact, function, inputs):
        results = super().run(artefact, function, inputs)
        if any(getattr(r, "shape", ()) == (5,) for r in results):
            results[0] = results[0].copy()
            results[0][3] += 0.5
        return results
