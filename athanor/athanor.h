#pragma once
/// Everything a program needs: tensors, autograd, modules, optimizers, data.

#include "athanor/autograd/autograd.h"
#include "athanor/autograd/function.h"
#include "athanor/base/parallel.h"
#include "athanor/data/data_loader.h"
#include "athanor/data/datasets.h"
#include "athanor/data/image_transforms.h"
#include "athanor/data/mnist_dataset.h"
#include "athanor/data/partition.h"
#include "athanor/data/samplers.h"
#include "athanor/data/transforms.h"
#include "athanor/io/archive.h"
#include "athanor/nn/nn.h"
#include "athanor/ops/factory.h"
#include "athanor/ops/tensor.h"
#include "athanor/optim/algorithms.h"
#include "athanor/optim/scheduler.h"
