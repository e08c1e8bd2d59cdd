"""In the place of aiokafka for programs that are started with this folder in `PYTHONPATH`: installs the layer."""

import sys

from pylog.compat import install

sys.modules.pop(__name__, None)  # this module; `install` puts the layer there
install()
