#pragma once
/// What the MNIST program is told on its command line.

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "cli/command_line.h"

namespace examples::mnist {

struct Flags {
  std::string net = "conv", optimizer = "sgd", device = "cpu";
  std::string data, backend, log_path, checkpoint, resume, save_model, profile;
  std::int64_t epochs = 4, batch_size = 64, test_batch_size = 1000, log_interval = 100, threads = 0, workers = 1,
               limit = 0, ranks = 1;
  std::uint64_t seed = 1;
  double lr = 0.01, momentum = 0.5, gamma = 1.0;
  bool dry_run = false, synthetic = false, no_progress = false, resume_if_there = false;
};

/// What CLI11's own checks let through: not-a-number and infinity.
inline std::string check_finite(const std::string& text) {
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  return *end == 0 && std::isfinite(value) && value >= 0 ? ""
                                                         : "Value " + text + " is not a finite number of at least 0";
}

/// Returns an exit code, or -1 to go on.
inline int parse(int argc, char** argv, Flags& f) {
  athanor::cli::CommandLine app{"Trains a convolutional network on MNIST"};
  app.add("--net", f.net, "conv (PyTorch's example) or tutorial (the distributed tutorial's)")
      .one_of({"conv", "tutorial"});
  app.add("--epochs", f.epochs, "passes over the training set").non_negative();
  app.add("--batch-size", f.batch_size, "images per step").range(1, 1 << 24);
  app.add("--test-batch-size", f.test_batch_size, "images per evaluation step").range(1, 1 << 24);
  app.add("--optimizer", f.optimizer, "sgd, adam or adadelta").one_of({"sgd", "adam", "adadelta"});
  app.add("--lr", f.lr, "learning rate").check(check_finite);
  app.add("--momentum", f.momentum, "momentum of SGD").real_range(0.0, 1.0);
  app.add("--gamma", f.gamma, "factor of the learning rate after each epoch").check(check_finite);
  app.add("--seed", f.seed, "random seed");
  app.add("--log-interval", f.log_interval, "steps between log lines").positive();
  app.add("--log-path", f.log_path, "also append the log lines to this file; ranks other than 0 to FILE.rankN");
  app.add("--data", f.data, "folder of the MNIST files; else $ATHANOR_DATA, known places, a download");
  app.add_flag("--synthetic", f.synthetic, "train on generated digits; test on MNIST where it can be had");
  app.add("--limit", f.limit, "use only the first N training and test images").non_negative();
  app.add("--workers", f.workers, "loader threads").range(0, 256);
  app.add("--threads", f.threads, "threads of kernels, 0 for all cores").non_negative();
  app.add("--device", f.device, "cpu, cuda, cpu:1 ..., or several with commas, which share every batch");
  app.add("--backend", f.backend, "process-group backend, for several ranks");
  app.add("--ranks", f.ranks, "processes to start here, each with batches of its own").range(1, 1024);
  const auto save = app.add("--save-model", f.save_model, "write the parameters (mnist.safetensors)").values(0, 1);
  app.add("--checkpoint", f.checkpoint, "write all state here after each epoch and on Ctrl-C or SIGTERM");
  const auto resume = app.add("--resume", f.resume,
                              "continue from this checkpoint; without a name from that of --checkpoint, if it is "
                              "there: what a job that is started again after a failure needs")
                          .values(0, 1);
  app.add("--profile", f.profile,
          "write what every op took, for chrome://tracing or Perfetto, and print the ten that took most; ranks "
          "other than 0 write FILE.rankN");
  app.add_flag("--dry-run", f.dry_run, "one step and one test batch");
  app.add_flag("--no-progress", f.no_progress, "no progress line");
  if (const auto status = app.parse(argc, argv)) return *status;
  if (save.given() && f.save_model.empty()) f.save_model = "mnist.safetensors";
  if (resume.given() && f.resume.empty()) {
    if (f.checkpoint.empty()) {
      std::fputs("--resume without a name continues from the file of --checkpoint: give that\n", stderr);
      return 2;
    }
    f.resume = f.checkpoint;
    f.resume_if_there = true;
  }
  return -1;
}

}  // namespace examples::mnist
