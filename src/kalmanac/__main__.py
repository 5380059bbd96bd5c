"""`python -m kalmanac VERB …`, the same as `kalmanac VERB …`."""

import sys

from kalmanac.cli import main

sys.exit(main())
