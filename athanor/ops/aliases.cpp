// PyTorch's other names of ops.
#include "athanor/ops/op.h"

// Element-wise.
ATHANOR_ALIAS("absolute", "abs");
ATHANOR_ALIAS("negative", "neg");
ATHANOR_ALIAS("fix", "trunc");
ATHANOR_ALIAS("arccos", "acos");
ATHANOR_ALIAS("arcsin", "asin");
ATHANOR_ALIAS("arctan", "atan");
ATHANOR_ALIAS("arccosh", "acosh");
ATHANOR_ALIAS("arcsinh", "asinh");
ATHANOR_ALIAS("arctanh", "atanh");
ATHANOR_ALIAS("arctan2", "atan2");
ATHANOR_ALIAS("subtract", "sub");
ATHANOR_ALIAS("multiply", "mul");
ATHANOR_ALIAS("divide", "div");
ATHANOR_ALIAS("true_divide", "div");
ATHANOR_ALIAS("clip", "clamp");

// Comparisons.
ATHANOR_ALIAS("greater", "gt");
ATHANOR_ALIAS("greater_equal", "ge");
ATHANOR_ALIAS("less", "lt");
ATHANOR_ALIAS("less_equal", "le");
ATHANOR_ALIAS("not_equal", "ne");

// Shapes.
ATHANOR_ALIAS("concatenate", "cat");
ATHANOR_ALIAS("row_stack", "vstack");
ATHANOR_ALIAS("moveaxis", "movedim");
ATHANOR_ALIAS("swapaxes", "transpose");
ATHANOR_ALIAS("swapdims", "transpose");
ATHANOR_ALIAS("unsafe_chunk", "chunk");
ATHANOR_ALIAS("unsafe_split", "split");
ATHANOR_ALIAS("unsafe_split_with_sizes", "split_with_sizes");
