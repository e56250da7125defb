#include "athanor/data/data_loader.h"

#include <algorithm>
#include <condition_variable>
#include <cstdio>
#include <deque>
#include <mutex>
#include <thread>

#include "athanor/base/parallel.h"

namespace athanor::data {

namespace {

std::string message_of(const std::exception_ptr& e) {
  try {
    std::rethrow_exception(e);
  } catch (const std::exception& x) {
    return x.what();
  } catch (...) {
    return "an unknown exception";
  }
}

std::string describe_failure(const std::exception_ptr& e, ArrayRef<std::size_t> indices) {
  std::string what = message_of(e) + "\nwhile loading ";
  if (const auto failed = datasets::detail::take_failed_sample()) what += "sample " + std::to_string(*failed) + " of ";
  what += "the batch of samples [";
  for (std::size_t i = 0; i < indices.size() && i < 8; ++i) what += (i ? ", " : "") + std::to_string(indices[i]);
  return what + (indices.size() > 8 ? ", ...]" : "]");
}

}  // namespace

WorkerException::WorkerException(std::exception_ptr original, ArrayRef<std::size_t> indices)
    : Error(describe_failure(original, indices)), original_exception(std::move(original)) {}

WorkerException::WorkerException(std::exception_ptr original, std::size_t wanted)
    : Error(message_of(original) + "\nwhile loading a batch of " + std::to_string(wanted) + " samples of a stream"),
      original_exception(std::move(original)) {}

namespace detail {

namespace {
thread_local std::size_t worker_number = 0;
}  // namespace

std::size_t WorkQueue::this_worker() { return worker_number; }

struct WorkQueue::Shared {
  std::mutex mutex;
  std::condition_variable job_ready, result_ready, worker_gone;
  std::deque<std::pair<Job, Job>> jobs;
  std::size_t running = 0, starting = 0;
  bool stopping = false, late = false;
  std::exception_ptr failure;  // of a worker itself, not of a job

  void work(const std::function<void(std::size_t)>& init);
};

void WorkQueue::Shared::work(const std::function<void(std::size_t)>& init) {
  const ThreadTeamGuard single(1);
  std::unique_lock lock(mutex, std::defer_lock);
  try {
    if (init) init(worker_number);
    lock.lock();
    if (--starting == 0) result_ready.notify_all();
    for (;;) {
      job_ready.wait(lock, [this] { return stopping || !jobs.empty(); });
      if (stopping) break;
      auto [make, keep] = std::move(jobs.front());
      jobs.pop_front();
      lock.unlock();
      make();
      lock.lock();
      keep();
      // What the job held goes without the lock: the last owner of a dataset may be here.
      lock.unlock();
      make = keep = nullptr;
      lock.lock();
      result_ready.notify_all();
    }
  } catch (...) {
    if (!lock.owns_lock()) lock.lock();
    failure = std::current_exception();
    result_ready.notify_all();
  }
  --running;
  worker_gone.notify_all();
}

struct WorkQueue::Workers {
  std::vector<std::thread> threads;
};

WorkQueue::WorkQueue(std::size_t workers, std::chrono::milliseconds timeout,
                     const std::function<void(std::size_t)>& init)
    : shared_(std::make_shared<Shared>()), workers_(std::make_unique<Workers>()), timeout_(timeout) {
  for (std::size_t i = 0; i < workers; ++i) {
    const std::lock_guard lock(shared_->mutex);
    try {
      workers_->threads.emplace_back([shared = shared_, i, init] {
        worker_number = i;
        shared->work(init);
      });
    } catch (const std::system_error&) {
      // The system has no more threads; those there are will do.
      if (workers_->threads.empty()) throw;
      break;
    }
    ++shared_->running;
    ++shared_->starting;
  }
}

WorkQueue::~WorkQueue() {
  std::deque<std::pair<Job, Job>> dropped;
  bool all_gone = false;
  {
    std::unique_lock lock(shared_->mutex);
    shared_->stopping = true;
    dropped.swap(shared_->jobs);
    shared_->job_ready.notify_all();
    const auto patience = shared_->late ? std::min(timeout_, std::chrono::milliseconds(1000)) : timeout_;
    all_gone = shared_->worker_gone.wait_for(lock, patience, [this] { return shared_->running == 0; });
  }
  if (!all_gone)
    std::fputs("DataLoader: a worker is stuck in the dataset and is left behind; the dataset stays in memory\n",
               stderr);
  for (auto& t : workers_->threads) {
    if (all_gone)
      t.join();
    else
      t.detach();
  }
}

void WorkQueue::push(Job make, Job keep) {
  {
    const std::lock_guard lock(shared_->mutex);
    shared_->jobs.emplace_back(std::move(make), std::move(keep));
  }
  shared_->job_ready.notify_one();
}

void WorkQueue::wait(const std::function<bool()>& ready, const Job& take) {
  std::unique_lock lock(shared_->mutex);
  const bool came = shared_->result_ready.wait_for(lock, timeout_, [&] { return ready() || shared_->failure; });
  if (came && !ready()) std::rethrow_exception(shared_->failure);
  if (!came) {
    shared_->late = true;
    ATHANOR_THROW(Error, "Timeout in DataLoader: no batch within the timeout of ", timeout_.count(),
                  " ms; the dataset or its transforms are slower than expected, or stuck. DataLoaderOptions::timeout "
                  "sets another");
  }
  take();
}

void WorkQueue::wait_for_init() {
  std::unique_lock lock(shared_->mutex);
  const bool came =
      shared_->result_ready.wait_for(lock, timeout_, [&] { return shared_->starting == 0 || shared_->failure; });
  if (shared_->failure) std::rethrow_exception(shared_->failure);
  if (came) return;
  shared_->late = true;
  ATHANOR_THROW(Error, "Timeout in DataLoader: worker_init has not returned in ", shared_->starting,
                " workers within the timeout of ", timeout_.count(), " ms. DataLoaderOptions::timeout sets another");
}

}  // namespace detail
}  // namespace athanor::data
