from typing import Any

from paddlecloud.legacy.parameters import Parameters as Parameters

__all__ = ["Parameters", "create"]

def create(layers: Any) -> Parameters: ...
