#include "athanor/io/progress.h"

#include <chrono>
#include <cmath>

#include "helpers.h"

namespace athanor::io {

namespace {

// A clock that the test moves and a page that keeps what is written.
struct Bench {
  double time = 100;
  std::string page;
  ProgressOptions options(bool terminal) {
    ProgressOptions o;
    o.enabled = true;
    o.terminal = terminal;
    o.columns = 80;
    o.write = [this](std::string_view text) { page += text; };
    o.now = [this] { return time; };
    return o;
  }
  std::string take() { return std::exchange(page, ""); }
};

}  // namespace

TEST(Progress, PlainLinesComeAtIntervalsAndAtTheEnd) {
  Bench bench;
  Progress progress(bench.options(false));
  progress.begin("epoch 1/3", 100);
  progress.set("loss", 0.5);
  for (int i = 0; i < 50; ++i) {
    bench.time += 0.25;
    progress.update();
  }
  EXPECT_EQ(bench.take(), "epoch 1/3:  40% 40/100 [0:10<0:15, 4.0 it/s] loss=0.5000\n");
  progress.set("loss", 1e-5);
  bench.time += 12.5;
  progress.update(50);
  progress.end("accuracy 99.1%");
  EXPECT_EQ(bench.take(),
            "epoch 1/3: 100% 100/100 [0:25, 4.0 it/s] loss=1.000e-05\n"
            "epoch 1/3: 100% 100/100 [0:25, 4.0 it/s] loss=1.000e-05 accuracy 99.1%\n");
}

TEST(Progress, FastEpochIsOneLine) {
  Bench bench;
  Progress progress(bench.options(false));
  for (int epoch = 1; epoch <= 2; ++epoch) {
    progress.begin("epoch " + std::to_string(epoch), 20000);
    for (int i = 0; i < 20000; ++i) progress.update();
    bench.time += 1;
    progress.end();
  }
  EXPECT_EQ(bench.take(),
            "epoch 1: 100% 20000/20000 [0:01, 20.0k it/s]\nepoch 2: 100% 20000/20000 [0:01, 20.0k it/s]\n");
}

TEST(Progress, TerminalLineIsRedrawnInPlace) {
  Bench bench;
  Progress progress(bench.options(true));
  progress.begin("train", 4);
  EXPECT_EQ(bench.take(), "\rtrain:   0% [..............................] 0/4 [0:00<?, 0.0 it/s]");
  bench.time += 0.05;
  progress.update();
  EXPECT_EQ(bench.take(), "") << "redrawn before the interval passed";
  bench.time += 0.95;
  progress.update();
  const std::string line = bench.take();
  EXPECT_EQ(line, "\rtrain:  50% [###############...............] 2/4 [0:01<0:01, 2.0 it/s]");
  progress.update(2);
  progress.end();
  const std::string last = bench.take();
  EXPECT_TRUE(last.starts_with("\rtrain: 100% 4/4 [0:01, 4.0 it/s]  ")) << last;
  EXPECT_EQ(last.size(), line.size() + 1) << "what was left of the longer line must be wiped";
  EXPECT_EQ(last.back(), '\n');
}

TEST(Progress, NeverWiderThanTheTerminal) {
  Bench bench;
  for (const int columns : {1, 10, 40, 60, 79}) {
    ProgressOptions options = bench.options(true);
    options.columns = columns;
    Progress progress(options);
    progress.begin("a long title", 100);
    progress.set("loss", 1);
    progress.set("accuracy", 1);
    bench.time += 1;
    progress.update();
    const std::string page = bench.take();
    EXPECT_LT(page.size() - page.rfind('\r') - 1, static_cast<std::size_t>(std::max(columns, 2))) << page;
    progress.end();
    bench.take();
  }
}

TEST(Progress, UnknownTotalShowsCountAndRate) {
  Bench bench;
  Progress progress(bench.options(false));
  progress.begin("", 0);
  bench.time += 20;
  progress.update(5);
  EXPECT_EQ(bench.take(), "5 [0:20, 4.00 s/it]\n");
}

TEST(Progress, WaitingIsMeasuredAndHintedAtOnce) {
  Bench bench;
  Progress progress(bench.options(false));
  for (int epoch = 0; epoch < 2; ++epoch) {
    progress.begin("e", 2);
    for (int i = 0; i < 2; ++i) {
      {
        const auto waiting = progress.waiting();
        bench.time += 0.3;
      }
      bench.time += 0.7;
      progress.update();
    }
    EXPECT_NEAR(progress.waiting_share(), 0.3, 1e-9);
    progress.end();
  }
  const std::string page = bench.take();
  EXPECT_CONTAINS(page, "e: 100% 2/2 [0:02, 1.0 it/s, waiting 30%]\nhint: 30% of the time went by waiting for data;");
  EXPECT_EQ(page.find("hint", page.find("hint") + 1), std::string::npos) << "hinted twice";
}

TEST(Progress, NoHintAtTwentyPercentOrForShortRuns) {
  Bench bench;
  Progress progress(bench.options(false));
  const auto epoch = [&](double waiting, double working) {
    progress.begin("e", 1);
    {
      const auto w = progress.waiting();
      bench.time += waiting;
    }
    bench.time += working;
    progress.end();
  };
  epoch(0.19, 0.81);
  epoch(0.5, 0.1);
  EXPECT_EQ(bench.take().find("hint"), std::string::npos);
}

TEST(Progress, DisabledWritesNothingButCounts) {
  Bench bench;
  ProgressOptions options = bench.options(true);
  options.enabled = false;
  {
    Progress progress(options);
    progress.begin("x", 10);
    bench.time += 100;
    progress.update(7);
    EXPECT_EQ(progress.done(), 7);
    EXPECT_NEAR(progress.rate(), 0.07, 1e-9);
    progress.end("done");
    progress.begin("y", 10);
  }
  EXPECT_EQ(bench.page, "");
}

TEST(Progress, OnlyRankZeroShowsByDefault) {
  Bench bench;
  ProgressOptions options = bench.options(false);
  options.enabled = std::nullopt;
  const auto lines_of_rank = [&](const char* rank) {
    if (rank)
      setenv("RANK", rank, 1);
    else
      unsetenv("RANK");
    Progress progress(options);
    unsetenv("RANK");
    progress.begin("x", 1);
    progress.end();
    return bench.take().size();
  };
  EXPECT_GT(lines_of_rank(nullptr), 0U);
  EXPECT_GT(lines_of_rank("0"), 0U);
  EXPECT_EQ(lines_of_rank("1"), 0U);
}

TEST(Progress, AnOpenTerminalLineIsEndedByTheDestructorAndByBegin) {
  Bench bench;
  {
    Progress progress(bench.options(true));
    progress.begin("a", 1);
    progress.begin("b", 1);
    EXPECT_CONTAINS(bench.page, "\n\rb");
  }
  EXPECT_EQ(bench.page.back(), '\n');
}

TEST(Progress, UpdateIsCheapWhenNothingIsDue) {
  ProgressOptions options;
  options.enabled = true;
  options.terminal = false;
  options.line_interval = 1e9;
  options.write = [](std::string_view) {};
  Progress progress(options);
  progress.begin("x", 0);
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < 100000; ++i) progress.update();
  const double each = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() / 1e5;
  EXPECT_LT(each, 5e-6);
  RecordProperty("nanoseconds", static_cast<int>(each * 1e9));
}

TEST(FormatDuration, CoversSecondsToHoursAndNonsense) {
  EXPECT_EQ(format_duration(0), "0:00");
  EXPECT_EQ(format_duration(59.4), "0:59");
  EXPECT_EQ(format_duration(754), "12:34");
  EXPECT_EQ(format_duration(10800), "3:00:00");
  EXPECT_EQ(format_duration(-1), "?");
  EXPECT_EQ(format_duration(INFINITY), "?");
  EXPECT_EQ(format_duration(NAN), "?");
}

}  // namespace athanor::io
