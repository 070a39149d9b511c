"""Training with parameter servers.

    from paddlecloud import ps

    server = ps.connect()
    server.create("w", np.zeros(13, np.float32), ps.SGD(0.01))
    for step in server.steps(1000):
        w = server.pull("w")
        server.push({"w": gradient_of(w, batch(step))})
    if server.trainer == 0:
        server.save_pass(0)

Inside a job, `connect` finds the job's parameter servers by the environment. Outside, it runs one in this process, so
that the same program trains alone.
"""

from paddlecloud._native import (
    PsError as Error,
    PsFenced as Fenced,
    PsNotFinite as NotFinite,
    PsOutOfMemory as OutOfMemory,
    PsRolledBack as RolledBack,
    ps_read_parameter as read_parameter,
)
from paddlecloud.ps.initial import Normal, Uniform, Zero
from paddlecloud.ps.optimizers import (
    SGD,
    AdaDelta,
    Adagrad,
    Adam,
    Adamax,
    AdamW,
    DecayedAdagrad,
    Ftrl,
    Momentum,
    Optimizer,
    OptimizerState,
    RMSProp,
    RowAdagrad,
    Velocity,
)
from paddlecloud.ps.schedules import (
    Constant,
    Cosine,
    Exponential,
    InversePower,
    InverseTime,
    Linear,
    Piecewise,
    Polynomial,
    Schedule,
)
from paddlecloud.ps.session import Session, connect

__all__ = [
    "SGD",
    "AdaDelta",
    "Adagrad",
    "Adam",
    "AdamW",
    "Adamax",
    "Constant",
    "Cosine",
    "DecayedAdagrad",
    "Error",
    "Exponential",
    "Fenced",
    "Ftrl",
    "InversePower",
    "InverseTime",
    "Linear",
    "Momentum",
    "Normal",
    "NotFinite",
    "Optimizer",
    "OptimizerState",
    "OutOfMemory",
    "Piecewise",
    "Polynomial",
    "RMSProp",
    "RolledBack",
    "RowAdagrad",
    "Schedule",
    "Session",
    "Uniform",
    "Velocity",
    "Zero",
    "connect",
    "read_parameter",
]
