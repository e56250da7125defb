// Trains a small GPT on characters and lets it write. `gpt --help` lists the flags.
#include <algorithm>
#include <array>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "athanor/athanor.h"
#include "athanor/io/checkpoint.h"
#include "athanor/io/file.h"
#include "athanor/io/progress.h"
#include "athanor/models/gpt.h"
#include "cli/command_line.h"
#include "examples/output_check.h"

namespace {

using namespace athanor;

volatile std::sig_atomic_t stop_signal = 0;
void on_signal(int signal) { stop_signal = signal; }

struct Flags {
  std::string data, checkpoint, resume, save_model, prompt = "\n";
  std::int64_t layers = 4, width = 256, heads = 4, context = 128, batch = 8, steps = 1000, eval_interval = 250,
               eval_batches = 20, warmup = 100, sample = 0, top_k = 0, threads = 0;
  double lr = 1e-3, weight_decay = 0.1, dropout = 0.1, clip = 1.0, temperature = 0.8;
  std::uint64_t seed = 1;
  bool in_order = false, no_progress = false;
};

/// Returns an exit code, or -1 to go on.
int parse(int argc, char** argv, Flags& f) {
  cli::CommandLine app{"Trains a small GPT on the characters of a text and lets it write"};
  const auto size = [&](const char* name, std::int64_t& value, std::int64_t least, const char* text) {
    app.add(name, value, text).range(least, std::int64_t{1} << 30).show_default();
  };
  const auto number = [&](const char* name, double& value, double most, const char* text) {
    app.add(name, value, text).real_range(0.0, most).show_default();
  };
  app.add("--data", f.data, "a text file, or a folder with input.txt; without it a small text of its own");
  size("--layers", f.layers, 1, "blocks");
  size("--width", f.width, 1, "features of a place");
  size("--heads", f.heads, 1, "attention heads of a block");
  size("--context", f.context, 1, "characters the model looks at");
  size("--batch-size", f.batch, 1, "sequences per step");
  size("--steps", f.steps, 0, "training steps in all");
  size("--warmup", f.warmup, 0, "steps in which the learning rate rises");
  size("--eval-interval", f.eval_interval, 1, "steps between validations");
  size("--eval-batches", f.eval_batches, 1, "batches of a validation");
  number("--lr", f.lr, 1e3, "learning rate");
  number("--weight-decay", f.weight_decay, 1e3, "of AdamW, for matrices");
  number("--dropout", f.dropout, 0.99, "probability");
  number("--clip", f.clip, 1e9, "greatest norm of all gradients, 0: any");
  app.add("--seed", f.seed, "random seed").show_default();
  app.add_flag("--in-order", f.in_order,
               "read the text from its beginning, as another program can, not at random places");
  size("--threads", f.threads, 0, "threads of kernels, 0 for all cores");
  app.add("--checkpoint", f.checkpoint, "write all state here after each validation and on Ctrl-C or SIGTERM");
  app.add("--resume", f.resume, "continue from a checkpoint, exactly");
  app.add("--save-model", f.save_model, "write the parameters, with GPT-2's names");
  size("--sample", f.sample, 0, "characters to write at the end");
  app.add("--prompt", f.prompt, "what they continue");
  number("--temperature", f.temperature, 100, "0: always the likeliest character");
  size("--top-k", f.top_k, 0, "draw among so many likeliest characters, 0: all");
  app.add_flag("--no-progress", f.no_progress, "no progress line");
  if (const auto status = app.parse(argc, argv)) return *status;
  return -1;
}

/// Verses without end, for machines that have no other text.
std::string own_text() {
  const std::array subjects{"the kettle", "a sparrow", "the old clock", "my neighbour", "the river", "a lantern"};
  const std::array verbs{"sings", "waits", "remembers", "counts", "forgets", "follows"};
  const std::array objects{"the morning", "its own shadow", "seven stones", "a quiet song", "the snow", "every door"};
  std::string text;
  for (std::size_t i = 0; i < 4000; ++i) {
    const std::size_t a = i * 7 % 11, b = i * 5 % 13, c = i * 3 % 17;
    text += std::string(subjects[a % 6]) + " " + verbs[b % 6] + " " + objects[c % 6] + (i % 3 == 2 ? ".\n" : ", ");
  }
  return text;
}

std::string read_text(const std::string& data) {
  if (data.empty()) {
    std::printf("No --data: training on a small text of this program's own\n");
    return own_text();
  }
  std::filesystem::path path = data;
  if (std::filesystem::is_directory(path)) path /= "input.txt";
  std::ifstream file(path, std::ios::binary);
  ATHANOR_CHECK_TYPE(IoError, file, "--data: cannot read ", path.string());
  return {std::istreambuf_iterator<char>(file), {}};
}

/// Bytes that occur in the text, numbered in their order.
class Alphabet {
 public:
  explicit Alphabet(std::string letters) : letters_(std::move(letters)) {
    number_.fill(-1);
    for (std::size_t i = 0; i < letters_.size(); ++i)
      number_[static_cast<unsigned char>(letters_[i])] = static_cast<std::int64_t>(i);
  }
  static Alphabet of(const std::string& text) {
    std::array<bool, 256> seen{};
    for (const char c : text) seen[static_cast<unsigned char>(c)] = true;
    std::string letters;
    for (int c = 0; c < 256; ++c)
      if (seen[static_cast<std::size_t>(c)]) letters += static_cast<char>(c);
    return Alphabet(letters);
  }
  std::int64_t size() const { return static_cast<std::int64_t>(letters_.size()); }
  Tensor encode(const std::string& text) const {
    std::vector<std::int64_t> out;
    for (const char c : text) {
      const std::int64_t n = number_[static_cast<unsigned char>(c)];
      ATHANOR_CHECK_VALUE(n >= 0, c == '\n' ? "a line break" : "'" + std::string(1, c) + "'",
                          " does not occur in the training text");
      out.push_back(n);
    }
    return tensor(out, TensorOptions(kLong));
  }
  std::string decode(const Tensor& tokens) const {
    std::string out;
    const Tensor plain = tokens.contiguous();
    for (std::int64_t i = 0; i < plain.numel(); ++i)
      out += letters_[static_cast<std::size_t>(plain.data_ptr<std::int64_t>()[i])];
    return out;
  }

 private:
  std::string letters_;
  std::array<std::int64_t, 256> number_{};
};

/// Matrices decay, biases and norms do not.
std::vector<optim::OptimizerParamGroup> groups_of(const models::GPT& net, const Flags& f) {
  std::vector<Tensor> decaying, others;
  for (const Tensor& p : net->parameters()) (p.dim() > 1 ? decaying : others).push_back(p);
  std::vector<optim::OptimizerParamGroup> groups;
  for (const bool decays : {true, false}) {
    auto options = std::make_unique<optim::AdamWOptions>(f.lr);
    options->betas({0.9, 0.95});
    options->weight_decay(decays ? f.weight_decay : 0.0);
    groups.emplace_back(decays ? decaying : others, std::move(options));
  }
  return groups;
}

models::GPTOptions options_of(const Flags& f, std::int64_t letters) {
  return models::GPTOptions(letters).n_positions(f.context).n_embd(f.width).n_layer(f.layers).n_head(f.heads).dropout(
      f.dropout);
}

class Trainer {
 public:
  Trainer(const Flags& flags, const std::string& text)
      : flags_(flags),
        alphabet_(Alphabet::of(text)),
        net_(options_of(flags, alphabet_.size())),
        optimizer_(groups_of(net_, flags)),
        progress_(progress_options()) {
    const Tensor all = alphabet_.encode(text);
    const std::int64_t cut = all.numel() * 9 / 10;
    train_ = all.narrow(0, 0, cut);
    validation_ = all.narrow(0, cut, all.numel() - cut);
    ATHANOR_CHECK_VALUE(validation_.numel() > flags.context, "the text has ", all.numel(), " characters, of which a ",
                        "tenth is for validation: too few for --context ", flags.context);
    if (flags.sample > 0) prompt_ = encode_prompt();
    if (!flags.resume.empty()) restore();
  }

  void run() {
    std::printf("%lld characters, %lld kinds; %lld parameters\n", static_cast<long long>(train_.numel()),
                static_cast<long long>(alphabet_.size()), static_cast<long long>(count_parameters()));
    progress_.begin("Training", flags_.steps * tokens_per_step());
    progress_.update(step_ * tokens_per_step());
    while (step_ < flags_.steps && !stop_signal) {
      train_step();
      if (step_ % flags_.eval_interval == 0 || step_ == flags_.steps) {
        validate();
        if (!flags_.checkpoint.empty()) save();
      }
    }
    progress_.end();
    if (!stop_signal) return;
    if (flags_.checkpoint.empty()) {
      std::printf("Interrupted; nothing was saved (give --checkpoint FILE to be able to continue)\n");
    } else {
      save();
      std::printf("Interrupted; continue with --resume %s\n", flags_.checkpoint.c_str());
    }
  }

  void finish() {
    if (!flags_.save_model.empty()) {
      io::save_module(flags_.save_model, *net_);
      std::printf("Saved the model to %s\n", flags_.save_model.c_str());
    }
    if (flags_.sample == 0) return;
    net_->eval();
    const Tensor written = net_->generate(prompt_.unsqueeze(0), flags_.sample, {flags_.temperature, flags_.top_k});
    std::printf("%s\n", alphabet_.decode(written[0]).c_str());
  }

 private:
  Tensor encode_prompt() const {
    ATHANOR_CHECK_VALUE(!flags_.prompt.empty(), "--prompt: expected at least one character for --sample to continue");
    try {
      return alphabet_.encode(flags_.prompt);
    } catch (const ValueError& e) {
      ATHANOR_THROW(ValueError, "--prompt: ", e.what(), "; give another one for --sample to continue");
    }
  }
  std::int64_t tokens_per_step() const { return flags_.batch * flags_.context; }
  std::int64_t count_parameters() const {
    std::int64_t n = 0;
    for (const Tensor& p : net_->parameters()) n += p.numel();
    return n;
  }
  io::ProgressOptions progress_options() const {
    io::ProgressOptions o;
    if (flags_.no_progress) o.enabled = false;
    o.unit = "characters";
    return o;
  }

  /// Batch `number` of `text`: sequences from random places, or one behind the other, and the characters that follow
  /// each of theirs.
  std::pair<Tensor, Tensor> batch_of(const Tensor& text, std::int64_t number) const {
    const std::int64_t last = text.numel() - flags_.context;
    const auto in_order = [&] {
      return (arange(flags_.batch, TensorOptions(kLong)) + number * flags_.batch) * flags_.context % last;
    };
    const Tensor starts = flags_.in_order ? in_order().unsqueeze(1) : randint(0, last, {flags_.batch, 1}, kLong);
    const Tensor places = starts + arange(flags_.context, TensorOptions(kLong));
    return {text.take(places), text.take(places + 1)};
  }

  void train_step() {
    net_->train();
    const double share = flags_.warmup > 0 ? static_cast<double>(step_ + 1) / static_cast<double>(flags_.warmup) : 1;
    for (auto& group : optimizer_.param_groups()) group.options().set_lr(flags_.lr * std::min(share, 1.0));
    const auto [x, y] = batch_of(train_, step_);
    optimizer_.zero_grad();
    const Tensor loss = net_->loss(x, y);
    loss.backward();
    if (flags_.clip > 0) nn::utils::clip_grad_norm_(net_->parameters(), flags_.clip);
    optimizer_.step();
    ++step_;
    if (step_ % 10 == 0) progress_.set("loss", loss.item<double>());
    progress_.update(tokens_per_step());
  }

  /// The same batches each time, whatever the training drew.
  void validate() {
    const NoGradGuard off;
    net_->eval();
    const PhiloxState drawn = default_generator().state();
    manual_seed(flags_.seed + 1);
    double loss = 0;
    for (std::int64_t i = 0; i < flags_.eval_batches; ++i) {
      const auto [x, y] = batch_of(validation_, i);
      loss += net_->loss(x, y).item<double>() / static_cast<double>(flags_.eval_batches);
    }
    default_generator().set_state(drawn);
    std::printf("Step %lld: validation loss %.4f\n", static_cast<long long>(step_), loss);
    std::fflush(stdout);
  }

  /// What a checkpoint must have in common with the run that continues it.
  std::string shape_text() const {
    return detail::str(flags_.layers, " layers, width ", flags_.width, ", ", flags_.heads, " heads, context ",
                       flags_.context, ", batch ", flags_.batch, ", ", alphabet_.size(), " letters");
  }

  void save() {
    io::Checkpoint c;
    c.set("shape", shape_text());
    c.set("step", step_);
    c.set_module("model", *net_);
    c.set_optimizer("optimizer", optimizer_);
    c.set_generator("generator", default_generator());
    c.save(flags_.checkpoint);
  }
  void restore() {
    const auto c = io::Checkpoint::load(flags_.resume);
    ATHANOR_CHECK_VALUE(c.text("shape") == shape_text(), "--resume: ", flags_.resume, " was written with ",
                        c.text("shape"), "; this run has ", shape_text());
    c.load_module("model", *net_);
    c.load_optimizer("optimizer", optimizer_);
    c.load_generator("generator", default_generator());
    step_ = c.integer("step");
    constexpr std::int64_t kMost = std::int64_t{1} << 30;  // as many as --steps can be
    ATHANOR_CHECK_VALUE(step_ >= 0 && step_ <= kMost, "--resume: ", flags_.resume, ": step is ", step_,
                        ", expected 0 to ", kMost);
    std::printf("Resumed from %s at step %lld\n", flags_.resume.c_str(), static_cast<long long>(step_));
  }

  const Flags& flags_;
  const Alphabet alphabet_;
  models::GPT net_;
  optim::AdamW optimizer_;
  io::Progress progress_;
  Tensor train_, validation_, prompt_;
  std::int64_t step_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  Flags flags;
  if (const int code = parse(argc, argv, flags); code >= 0) return code;
  try {
    if (flags.threads > 0) set_num_threads(static_cast<int>(flags.threads));
    examples::check_output("--checkpoint", flags.checkpoint);
    examples::check_output("--save-model", flags.save_model);
    manual_seed(flags.seed);
    Trainer trainer(flags, read_text(flags.data));
    std::signal(SIGINT, on_signal);
    std::signal(SIGTERM, on_signal);
    trainer.run();
    if (stop_signal) return 128 + static_cast<int>(stop_signal);
    trainer.finish();
  } catch (const std::exception& e) {
    std::fprintf(stderr, "gpt: %s\n", e.what());
    return 1;
  }
  return 0;
}
