// Event files as TensorBoard itself reads them; skipped where no Python has it.
#include <filesystem>

#include "athanor/io/summary_writer.h"
#include "athanor/ops/factory.h"
#include "python.h"

namespace athanor::io {

TEST(TensorBoard, ReadsWhatTheWriterWrote) {
  SKIP_WITHOUT_PYTHON("tensorboard");
  const TempFolder folder;
  {
    SummaryWriter writer(folder / "run");
    for (int step = 0; step < 5; ++step) writer.add_scalar("loss/train", 1.0 / (1 + step), step * 10);
    writer.add_scalars("accuracy", {{"test", 0.5}, {"train", 0.75}}, 3);
    writer.add_histogram("weights", arange(101, TensorOptions(kFloat)) / 100, 7, 10);
    writer.add_image("picture", full({3, 4, 6}, 0.5), 2);
    writer.add_text("note", "**bold** and \"quoted\"", 1);
  }
  EXPECT_TRUE(run_python(folder, "tensorboard", R"(
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.util import tensor_util
a = EventAccumulator("run", size_guidance={"scalars": 0, "tensors": 0, "histograms": 0, "images": 0})
a.Reload()
tags = a.Tags()
assert set(tags["scalars"]) == {"loss/train", "accuracy/test", "accuracy/train"}, tags
got = [(e.step, e.value) for e in a.Scalars("loss/train")]
assert [s for s, _ in got] == [0, 10, 20, 30, 40], got
assert all(abs(v - 1 / (1 + i)) < 1e-7 for i, (_, v) in enumerate(got)), got
assert all(e.wall_time > 1.5e9 for e in a.Scalars("loss/train"))
assert [(e.step, e.value) for e in a.Scalars("accuracy/train")] == [(3, 0.75)]
(h,) = a.Histograms("weights")
h = h.histogram_value
assert (h.num, h.min, h.max) == (101, 0, 1), h
assert abs(h.sum - 50.5) < 1e-3 and sum(h.bucket) == 101 and len(h.bucket) == len(h.bucket_limit), h
(i,) = a.Images("picture")
assert (i.step, i.width, i.height) == (2, 6, 4) and i.encoded_image_string[:4] == b"\x89PNG", i
(t,) = a.Tensors("note/text_summary" if "note/text_summary" in tags["tensors"] else "note")
text = tensor_util.make_ndarray(t.tensor_proto)
assert t.step == 1 and text.item(0).decode() == '**bold** and "quoted"', text
)"));
}

}  // namespace athanor::io
