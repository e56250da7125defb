#pragma once
/// namespace athanor::nn::functional: the layers as functions.

#include "athanor/nn/activation.h"
#include "athanor/nn/attention.h"
#include "athanor/nn/conv.h"
#include "athanor/nn/distance.h"
#include "athanor/nn/dropout.h"
#include "athanor/nn/embedding.h"
#include "athanor/nn/embedding_bag.h"
#include "athanor/nn/linear.h"
#include "athanor/nn/local_norm.h"
#include "athanor/nn/loss.h"
#include "athanor/nn/loss_more.h"
#include "athanor/nn/normalization.h"
#include "athanor/nn/padding.h"
#include "athanor/nn/pooling.h"
#include "athanor/nn/unpooling.h"
#include "athanor/nn/vision.h"
