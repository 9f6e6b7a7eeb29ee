"""onnxruntime's WASM file for the page without a server, compressed, out of page/node_modules.

python tools/page_runtime.py            # compare the file in the package with it
python tools/page_runtime.py --write    # write it again, after a change of page/package.json
"""

from __future__ import annotations

import argparse
import lzma
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "page/node_modules/onnxruntime-web/dist/ort-wasm-simd-threaded.wasm"
FILE = ROOT / "src/elmokit/server/onnxruntime-web.wasm.xz"


def main() -> int:
    """Compare or write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--write", action="store_true")
    wanted = SOURCE.read_bytes()
    current = FILE.is_file() and lzma.decompress(FILE.read_bytes()) == wanted
    if parser.parse_args().write and not current:
        FILE.write_bytes(lzma.compress(wanted, preset=9 | lzma.PRESET_EXTREME))
    elif not current:
        print(f"{FILE.name} is not that of page/package-lock.json; write it with --write")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
