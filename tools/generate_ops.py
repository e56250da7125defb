import argparse, pathlib
p = argparse.ArgumentParser(); p.add_argument("--out"); p.add_argument("sources", nargs="*"); a = p.parse_args()
out = pathlib.Path(a.out); out.mkdir(parents=True, exist_ok=True); (out / "ops.stamp").touch()
