"""The benchmarks: `./dev bench [--quick] [names…]`. Each module measures one noun, and its rivals in the same run."""
