// Streams and events, as programs use them.
#include "athanor/tensor/event.h"

#include <chrono>
#include <thread>

#include "device_queue/queued_device.h"

namespace athanor {

TEST_F(QueuedDevice, AnEventIsPastOnceTheWorkBeforeItHasRun) {
  const Tensor x = ones({4}, options_on(1));
  Event event;
  EXPECT_TRUE(event.query());  // never recorded
  EXPECT_FALSE(event.was_recorded());
  synchronize(on(1));
  close();
  x.fill_(2);
  event.record(Stream(on(1)));
  EXPECT_FALSE(event.query());
  latch_->count_down();
  event.synchronize();
  EXPECT_TRUE(event.query());
  EXPECT_EQ(x[0].item<float>(), 2.0F);
}

class QueuedDeviceWaits : public QueuedDevice {
 protected:
  // After wait(), work of cpu:0 runs after that of cpu:1, although it takes nothing from it.
  template <class Wait>
  void expect_later_work_waits(Wait wait) {
    const Tensor x = ones({4}, options_on(0));
    synchronize(on(0));
    close();  // cpu:1
    wait();
    x.fill_(5);
    const float* raw = static_cast<const float*>(x.storage()->data());
    EXPECT_FALSE(Stream(on(0)).query());
    EXPECT_EQ(raw[0], 1.0F);
    latch_->count_down();
    Stream(on(0)).synchronize();
    EXPECT_EQ(raw[0], 5.0F);
  }
};

TEST_F(QueuedDeviceWaits, AStreamThatWaitsForAnEventRunsLaterWorkAfterIt) {
  expect_later_work_waits([&] {
    const Event event = Stream(on(1)).record_event();
    event.block(Stream(on(0)));
  });
}

TEST_F(QueuedDeviceWaits, AStreamThatWaitsForAnotherRunsLaterWorkAfterItsWork) {
  expect_later_work_waits([&] {
    Stream(on(0)).wait_stream(Stream(on(1)));
    Stream(on(0)).wait_stream(Stream(on(0)));     // says nothing new
    Stream(on(0)).wait_stream(Stream(Device()));  // the host's work is done
  });
}

TEST_F(QueuedDevice, ElapsedTimeIsThatOfTheWorkBetweenTwoEvents) {
  using Clock = std::chrono::steady_clock;
  Event begin(true), end(true);
  const Stream stream(on(1));
  const auto first = Clock::now();
  begin.record(stream);
  close();
  end.record(stream);
  while (!begin.query()) std::this_thread::yield();
  const auto seen = Clock::now();
  while (Clock::now() - seen < std::chrono::milliseconds(2)) std::this_thread::yield();
  latch_->count_down();
  end.synchronize();
  EXPECT_GE(begin.elapsed_time(end), 2.0);
  EXPECT_LE(begin.elapsed_time(end), (std::chrono::duration<double, std::milli>(Clock::now() - first).count()));
  EXPECT_DOUBLE_EQ(end.elapsed_time(begin), -begin.elapsed_time(end));
}

TEST_F(QueuedDevice, ElapsedTimeRefusesEventsThatHaveNone) {
  Event timed(true), untimed, never(true);
  timed.record(Stream(on(1)));
  untimed.record(Stream(on(1)));
  synchronize(on(1));
  EXPECT_THROW(timed.elapsed_time(untimed), Error);
  EXPECT_THROW(timed.elapsed_time(never), Error);
  close();
  Event late(true);
  late.record(Stream(on(1)));
  EXPECT_THROW(timed.elapsed_time(late), Error);
}

TEST_F(QueuedDevice, TheHostsStreamIsAlwaysUpToDate) {
  const Stream host{Device()};
  Event begin(true), end(true);
  begin.record(host);
  EXPECT_TRUE(begin.query());
  const Tensor x = zeros({1}, options_on(1));
  synchronize(on(1));
  x.fill_(3);
  host.wait(Stream(on(1)).record_event());  // the host itself waits
  EXPECT_TRUE(Stream(on(1)).query());
  end.record(host);
  EXPECT_GE(begin.elapsed_time(end), 0.0);
  EXPECT_TRUE(host == Stream(Device("cpu")));
  EXPECT_THROW(Stream(on(7)), Error);
}

}  // namespace athanor
