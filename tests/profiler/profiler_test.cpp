// What the profiler records of real calls, and what it makes of it.
#include "athanor/profiler/profiler.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <set>
#include <thread>

#include "athanor/models/mnist.h"
#include "athanor/optim/optimizer.h"
#include "distributed/ranks.h"

namespace athanor::profiler {
namespace {

using testing::Contains;
using testing::UnorderedElementsAre;

const Event& only(const Profile& profile, std::string_view name) {
  const Event* found = nullptr;
  for (const Event& e : profile.events())
    if (e.name == name) {
      EXPECT_EQ(found, nullptr) << name << " is there twice";
      found = &e;
    }
  if (!found) throw std::runtime_error("no event " + std::string(name));
  return *found;
}

std::vector<std::string> names(const Profile& profile) {
  std::vector<std::string> out;
  for (const Event& e : profile.events()) out.push_back(e.name);
  return out;
}

std::string parent_name(const Profile& profile, const Event& e) {
  return e.parent < 0 ? "" : profile.events()[static_cast<std::size_t>(e.parent)].name;
}

/// Children lie inside their parents, in their threads, and self times are what children leave.
void expect_consistent(const Profile& profile) {
  const auto& events = profile.events();
  std::vector<std::int64_t> self(events.size()), self_bytes(events.size());
  for (std::size_t i = 0; i < events.size(); ++i) {
    const Event& e = events[i];
    ASSERT_LT(e.thread, profile.threads().size());
    EXPECT_GE(e.start, 0);
    EXPECT_GE(e.duration, 0);
    self[i] += e.duration;
    self_bytes[i] += e.bytes;
    if (e.parent < 0) continue;
    ASSERT_LT(e.parent, static_cast<std::int64_t>(i)) << "parents come first";
    const Event& parent = events[static_cast<std::size_t>(e.parent)];
    EXPECT_EQ(parent.thread, e.thread);
    EXPECT_LE(parent.start, e.start);
    EXPECT_GE(parent.start + parent.duration, e.start + e.duration) << e.name << " in " << parent.name;
    self[static_cast<std::size_t>(e.parent)] -= e.duration;
    self_bytes[static_cast<std::size_t>(e.parent)] -= e.bytes;
  }
  for (std::size_t i = 0; i < events.size(); ++i) {
    EXPECT_EQ(events[i].self, self[i]) << events[i].name;
    EXPECT_EQ(events[i].self_bytes, self_bytes[i]) << events[i].name;
    EXPECT_GE(self[i], 0) << events[i].name;
  }
}

}  // namespace

TEST(Profiler, RecordsNothingWhenOff) {
  const Tensor x = ones({4});
  Profile profile;
  const Tensor y = x + x;
  profile.stop();
  const RecordFunction scope("after");
  const Tensor z = y * y;
  EXPECT_THAT(names(profile), testing::ElementsAre("add"));
  EXPECT_FALSE(profile.is_recording());
  EXPECT_EQ(profile.dropped(), 0);
}

TEST(Profiler, TrainingStepHasForwardBackwardAndUpdateWithTheirLinks) {
  models::TutorialNet net;
  optim::SGD sgd(net->parameters(), 0.1);
  const Tensor images = randn({2, 1, 28, 28}), labels = zeros({2}, kLong);
  Profile profile({.record_shapes = true, .profile_memory = true});
  {
    const RecordFunction step("step");
    const Tensor loss = nll_loss(net(images), labels);
    loss.backward();
    sgd.step();
  }
  profile.stop();
  expect_consistent(profile);

  std::map<std::uint64_t, const Event*> forward;
  std::vector<const Event*> backward;
  for (const Event& e : profile.events()) {
    EXPECT_EQ(e.device, "cpu");
    if (e.kind == EventKind::Op && e.sequence != 0) {
      EXPECT_TRUE(forward.emplace(e.sequence, &e).second) << e.name;
    }
    if (e.kind == EventKind::Backward) backward.push_back(&e);
  }
  std::map<std::string, std::set<std::string>> makers;
  for (const Event* e : backward) {
    EXPECT_EQ(parent_name(profile, *e), "step");
    EXPECT_NE(e->sequence, 0U);
    if (e->name == "AccumulateGrad") continue;
    ASSERT_TRUE(forward.contains(e->sequence)) << e->name;
    makers[e->name].insert(forward[e->sequence]->name);
    EXPECT_LE(forward[e->sequence]->start + forward[e->sequence]->duration, e->start);
  }
  EXPECT_THAT(makers["ConvolutionBackward0"], UnorderedElementsAre("convolution"));
  EXPECT_THAT(makers["ReluBackward0"], UnorderedElementsAre("relu"));
  EXPECT_EQ(
      std::count_if(backward.begin(), backward.end(), [](const Event* e) { return e->name == "ConvolutionBackward0"; }),
      2);
  EXPECT_THAT(names(profile), Contains("sgd_step"));
  // The first convolution's operands, as they were given.
  const auto conv = std::find_if(profile.events().begin(), profile.events().end(),
                                 [](const Event& e) { return e.name == "convolution"; });
  EXPECT_THAT(conv->shapes, testing::ElementsAre(testing::ElementsAre(2, 1, 28, 28), testing::ElementsAre(10, 1, 5, 5),
                                                 testing::ElementsAre(10)));
}

TEST(Profiler, NamesTheFormsOfACallAndItsViews) {
  Tensor x = ones({2, 3}), out = empty({2, 3});
  Profile profile({.record_shapes = true});
  x.add_(1);
  add_out(out, x, x);
  x.t().copy_(ones({3, 2}));
  profile.stop();
  expect_consistent(profile);
  for (const char* name : {"add_", "add_out", "t", "copy_"}) EXPECT_THAT(names(profile), Contains(name));
  EXPECT_THAT(only(profile, "add_out").shapes, testing::Each(testing::ElementsAre(2, 3)));
  EXPECT_THAT(only(profile, "copy_").shapes, testing::Each(testing::ElementsAre(3, 2)));
}

TEST(Profiler, ListsOfTensorsShowTheShapeOfEach) {
  Profile profile({.record_shapes = true});
  const Tensor joined = cat({ones({2, 1}), ones({2, 3})}, 1), nothing;
  profile.stop();
  EXPECT_THAT(only(profile, "cat_same_dtype").shapes,
              testing::ElementsAre(testing::ElementsAre(2, 1), testing::ElementsAre(2, 3)));
}

TEST(Profiler, OpThatThrowsIsOverWhenItsErrorArrives) {
  const Tensor a = ones({2, 3}), b = ones({4, 5});
  Profile profile;
  {
    const RecordFunction scope("scope");
    EXPECT_THROW(a.mm(b), Error);
    EXPECT_THROW(a.view({7}), Error);
    const Tensor fine = a + a;
  }
  const Tensor after = a * a;
  profile.stop();
  expect_consistent(profile);
  EXPECT_EQ(parent_name(profile, only(profile, "mm")), "scope");
  EXPECT_EQ(parent_name(profile, only(profile, "add")), "scope");
  EXPECT_EQ(parent_name(profile, only(profile, "mul")), "");
}

TEST(Profiler, EventsKnowTheirThreads) {
  Profile profile;
  const Tensor x = ones({3});
  const auto work = [&x](const char* name) {
    const RecordFunction scope(name);
    for (int i = 0; i < 100; ++i) Tensor y = x + x;
  };
  std::thread one(work, "one"), two(work, "two");
  work("here");
  one.join();
  two.join();
  profile.stop();
  expect_consistent(profile);
  ASSERT_EQ(profile.threads().size(), 3U);
  std::set<std::int64_t> ids;
  for (const ThreadInfo& t : profile.threads()) ids.insert(t.id);
  EXPECT_EQ(ids.size(), 3U);
  for (const char* name : {"one", "two", "here"}) {
    const std::uint32_t thread = only(profile, name).thread;
    EXPECT_EQ(profile.threads()[thread].name == "main", name == std::string("here"));
    EXPECT_EQ(std::count_if(profile.events().begin(), profile.events().end(),
                            [&](const Event& e) { return e.thread == thread && e.name == "add"; }),
              100);
  }
}

TEST(Profiler, MayBeStoppedWhileOtherThreadsWork) {
  std::atomic<bool> stop{false};
  const Tensor x = ones({3});
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t)
    threads.emplace_back([&] {
      while (!stop) {
        const RecordFunction scope("work");
        Tensor y = x + x;
      }
    });
  for (int i = 0; i < 20; ++i) {
    Profile profile({.profile_memory = true});
    for (int k = 0; k < 200; ++k) Tensor y = x * x;
    profile.stop();
    for (const Event& e : profile.events()) EXPECT_GE(e.duration, 0);
  }
  stop = true;
  for (auto& t : threads) t.join();
}

TEST(Profiler, BytesAreThoseKeptLessThoseGivenBack) {
  constexpr std::int64_t kLarge = 4 << 20, kSmall = 256;
  Profile profile({.profile_memory = true});
  Tensor large, small;
  {
    const RecordFunction scope("makes");
    large = empty({kLarge}, kByte);
    const RecordFunction inner("makes little");
    small = empty({kSmall}, kByte);
  }
  {
    const RecordFunction scope("uses");
    const Tensor gone = large + large;
  }
  {
    const RecordFunction scope("frees");
    large = small = Tensor();
  }
  profile.stop();
  expect_consistent(profile);
  // In the allocator's blocks, which are up to an eighth larger than what is asked.
  const std::int64_t made = only(profile, "makes").bytes, little = only(profile, "makes little").bytes;
  EXPECT_GE(little, kSmall);
  EXPECT_LE(little, kSmall + 128);
  EXPECT_EQ(only(profile, "makes").self_bytes, made - little);
  EXPECT_GE(made - little, kLarge);
  EXPECT_LE(made - little, kLarge + kLarge / 8);
  EXPECT_EQ(only(profile, "add").bytes, made - little);
  EXPECT_EQ(only(profile, "uses").bytes, 0);
  EXPECT_EQ(only(profile, "frees").bytes, -made);
}

TEST(Profiler, KeepsNoMoreEventsThanAskedAndCountsTheRest) {
  const Tensor x = ones({2});
  Profile profile({.max_events = 1000});
  for (int i = 0; i < 100000; ++i) Tensor y = x.detach() + x;
  profile.stop();
  EXPECT_EQ(profile.events().size(), 1000U);
  EXPECT_EQ(profile.dropped(), 99000);
  expect_consistent(profile);
}

TEST(Profiler, OneProfileAtATimeAndResultsOnlyAfterItsEnd) {
  Profile first;
  EXPECT_THROW(Profile(), Error);
  EXPECT_THROW(first.events(), Error);
  EXPECT_THROW(first.key_averages(), Error);
  EXPECT_THROW(first.export_chrome_trace("/dev/null"), Error);
  first.stop();
  first.stop();
  Profile second;
  const Tensor x = ones({2});
  second.stop();
  EXPECT_EQ(first.events().size(), 0U);
}

TEST(Profiler, ScopesThatOutliveAProfileDoNotTouchTheNext) {
  auto first = std::make_unique<Profile>();
  auto stale = std::make_unique<RecordFunction>("of the first");
  first->stop();
  Profile second;
  const RecordFunction own("of the second");
  stale.reset();
  const Tensor x = ones({2}) + 1;
  second.stop();
  EXPECT_EQ(only(*first, "of the first").name, "of the first");
  EXPECT_EQ(parent_name(second, only(second, "add")), "of the second");
}

TEST(Profiler, ScopeThatEndsInAnotherThreadIsLeftOpen) {
  Profile profile;
  auto scope = std::make_unique<RecordFunction>("moved");
  std::thread([&] {
    const RecordFunction other("other");
    scope.reset();
  }).join();
  profile.stop();
  expect_consistent(profile);
  EXPECT_EQ(profile.events().size(), 2U);
}

TEST(Profiler, KernelsOfQueuedDevicesAreEventsOfTheirWorkers) {
  athanor::detail::configure_cpu_queues(2);
  {
    Profile profile;
    const Device device(DeviceType::CPU, 1);
    const Tensor x = ones({4}, TensorOptions(device));
    const Tensor y = x + x;
    synchronize(device);
    profile.stop();
    std::vector<const Event*> kernels;
    for (const Event& e : profile.events())
      if (e.kind == EventKind::Kernel) kernels.push_back(&e);
    ASSERT_GE(kernels.size(), 2U);
    for (const Event* e : kernels) {
      EXPECT_EQ(e->device, "cpu:1");
      EXPECT_EQ(profile.threads()[e->thread].name, "queue of cpu:1");
    }
    EXPECT_EQ(only(profile, "add").device, "cpu:1");
    EXPECT_EQ(profile.threads()[only(profile, "add").thread].name, "main");
  }
  athanor::detail::configure_cpu_queues(0);
}

TEST(Profiler, QueuesOfBothFamiliesAreToldApart) {
  athanor::detail::configure_cpu_queues(2);
  athanor::detail::configure_cuda_queues(2);
  {
    Profile profile;
    for (const Device device : {Device(DeviceType::CPU, 1), Device(DeviceType::CUDA, 1)}) {
      const Tensor x = ones({4}, TensorOptions(device));
      const Tensor y = device.is_cuda() ? x * x : x + x;
      synchronize(device);
    }
    profile.stop();
    std::set<std::string> devices, queues;
    for (const Event& e : profile.events())
      if (e.kind == EventKind::Kernel) {
        devices.insert(e.device);
        queues.insert(profile.threads()[e.thread].name);
      }
    EXPECT_THAT(devices, UnorderedElementsAre("cpu:1", "cuda:1"));
    EXPECT_THAT(queues, UnorderedElementsAre("queue of cpu:1", "queue of cuda:1"));
    EXPECT_EQ(only(profile, "add").device, "cpu:1");
    EXPECT_EQ(only(profile, "mul").device, "cuda:1");
  }
  athanor::detail::configure_cuda_queues(0);
  athanor::detail::configure_cpu_queues(0);
}

TEST(Profiler, CollectivesAreEvents) {
  Profile profile;
  distributed::run_ranks(2, [](distributed::ProcessGroup& group) {
    Tensor t = ones({2});
    group.all_reduce(t);
  });
  profile.stop();
  EXPECT_EQ(std::count_if(profile.events().begin(), profile.events().end(),
                          [](const Event& e) { return e.kind == EventKind::Collective && e.name == "all_reduce"; }),
            2);
}

}  // namespace athanor::profiler
