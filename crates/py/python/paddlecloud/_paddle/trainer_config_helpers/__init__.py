"""What a configuration of v1 imports: `from paddle.trainer_config_helpers import *`.

A configuration that is started by `python` trains as with `paddle train --config`: see `paddlecloud.v1.started`.
"""

from paddlecloud.v1 import started
from paddlecloud.v1.names import *  # noqa: F403
from paddlecloud.v1.names import __all__ as __all__

started.train_if_main()
