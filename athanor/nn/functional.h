#pragma once
/// namespace athanor::nn::functional: the layers as functions.

#include "athanor/nn/activation.h"
#include "athanor/nn/conv.h"
#include "athanor/nn/dropout.h"
#include "athanor/nn/embedding.h"
#include "athanor/nn/linear.h"
#include "athanor/nn/loss.h"
#include "athanor/nn/normalization.h"
#include "athanor/nn/padding.h"
#include "athanor/nn/pooling.h"
