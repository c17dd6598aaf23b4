"""The torch dialect: torch-mlir's types, ops and assembly."""
