"""`python -m kalmanac VERB …`, the same as `kalmanac VERB …`."""

import sys

from kalmanac._cli.program import main

sys.exit(main())
