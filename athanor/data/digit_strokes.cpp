#include "athanor/data/digit_strokes.h"

#include <cassert>
#include <initializer_list>

namespace athanor::data::detail {

SinCos sincos_turns(float turns) {
  // To [-1/8, 1/8] of a turn and a quadrant.
  const float quarters = turns * 4.0F;
  const auto nearest = static_cast<std::int32_t>(quarters + (quarters < 0 ? -0.5F : 0.5F));
  const float x = (quarters - static_cast<float>(nearest)) * 1.57079633F;
  const float x2 = x * x;
  const float s = x * (1.0F - x2 * (1.0F / 6 - x2 * (1.0F / 120 - x2 * (1.0F / 5040))));
  const float c = 1.0F - x2 * (0.5F - x2 * (1.0F / 24 - x2 * (1.0F / 720 - x2 * (1.0F / 40320))));
  switch (nearest & 3) {
    case 0:
      return {s, c};
    case 1:
      return {c, -s};
    case 2:
      return {-s, -c};
    default:
      return {-c, s};
  }
}

namespace {

class Pen {
 public:
  Pen(Drawing& drawing, DigitRandom& random) : drawing_(drawing), random_(random) {
    jitter_ = random.uniform(0.008F, 0.03F);
  }

  Pen& lift() {
    assert(drawing_.size < Drawing::kCapacity);
    stroke_ = &drawing_.strokes[drawing_.size++];
    return *this;
  }
  Pen& to(float x, float y) { return put(random_.normal(x, jitter_), random_.normal(y, jitter_)); }
  /// A point at which the pen turns sharply.
  Pen& corner(float x, float y) {
    const float jx = random_.normal(x, jitter_);
    const float jy = random_.normal(y, jitter_);
    return put(jx, jy).put(jx, jy);
  }
  /// Part of an ellipse; angles in turns from the right, growing downwards, that is clockwise to the eye.
  Pen& arc(float cx, float cy, float rx, float ry, float from, float sweep) {
    const float size = sweep < 0 ? -sweep : sweep;
    const int steps = static_cast<int>(size * 8.0F) + 1;
    for (int i = 0; i <= steps; ++i) {
      const SinCos t = sincos_turns(from + sweep * static_cast<float>(i) / static_cast<float>(steps));
      to(cx + rx * t.cos, cy + ry * t.sin);
    }
    return *this;
  }
  Point last() const { return stroke_->points[stroke_->size - 1]; }

 private:
  Pen& put(float x, float y) {
    assert(stroke_->size < Stroke::kCapacity);
    stroke_->points[stroke_->size++] = {x, y};
    return *this;
  }

  Drawing& drawing_;
  DigitRandom& random_;
  Stroke* stroke_ = nullptr;
  float jitter_;
};

void draw_0(Pen& pen, DigitRandom& r) {
  const float rx = r.chance(0.15F) ? r.uniform(0.45F, 0.8F) : r.uniform(0.18F, 0.5F);
  const float start = r.normal(-0.22F, 0.09F);
  const bool clockwise = r.chance(0.2F);
  const float sweep = r.normal(1.0F, 0.06F) * (clockwise ? 1.0F : -1.0F);
  const float egg = r.normal(0, 0.05F);
  pen.lift().arc(rx, 0.5F, rx, 0.5F, start, sweep * 0.5F);
  pen.arc(rx + egg, 0.5F, rx * r.normal(1.0F, 0.07F), 0.5F * r.normal(1.0F, 0.05F), start + sweep * 0.56F,
          sweep * 0.44F);
  if (r.chance(0.2F)) {  // the end runs past the beginning
    const Point end = pen.last();
    pen.to(end.x + r.uniform(-0.25F, 0.3F), end.y + r.uniform(-0.12F, 0.25F));
  }
}

void draw_1(Pen& pen, DigitRandom& r) {
  const float lean = r.normal(0.12F, 0.16F);
  const float bow = r.normal(0, 0.03F);
  const float form = r.uniform();
  if (form < 0.3F) {  // with a flag
    const float reach = r.uniform(0.1F, 0.32F);
    pen.lift().to(lean - reach, r.uniform(0.12F, 0.32F)).corner(lean, 0);
    pen.to(lean * 0.5F + bow, 0.5F).to(0, 1);
  } else {
    pen.lift().to(lean, 0).to(lean * 0.5F + bow, 0.5F).to(0, 1);
  }
  if (form < 0.1F || form > 0.97F) {
    const float half = r.uniform(0.15F, 0.35F);
    pen.lift().to(-half, 1.0F + r.normal(0, 0.02F)).to(half, 1.0F + r.normal(0, 0.03F));
  }
}

void draw_2(Pen& pen, DigitRandom& r) {
  const float w = r.uniform(0.45F, 0.95F);
  const float top = r.uniform(0.2F, 0.32F);   // radius of the upper curve
  const float hook = r.uniform(0.0F, 0.22F);  // how far down it begins
  pen.lift();
  if (r.chance(0.85F)) pen.to(w * r.uniform(0.0F, 0.15F), top * 0.55F + hook);
  pen.to(w * 0.22F, top * 0.25F).to(w * 0.5F, 0).to(w * 0.82F, top * 0.4F).to(w * r.uniform(0.84F, 0.95F), top * 1.1F);
  pen.to(w * r.uniform(0.66F, 0.8F), r.uniform(0.5F, 0.62F));
  const float form = r.uniform();
  const float end_y = r.normal(0.96F, 0.06F);
  if (form < 0.4F) {  // a corner at the foot
    pen.to(w * 0.35F, 0.78F).corner(w * r.uniform(-0.05F, 0.12F), r.uniform(0.92F, 1.0F));
    pen.to(w * 0.45F, 0.96F + r.normal(0, 0.03F)).to(w * r.uniform(0.65F, 1.25F), end_y);
  } else if (form < 0.8F) {  // a loop at the foot
    const float size = r.uniform(0.5F, 1.7F);
    const float y = r.uniform(0.8F, 0.92F);
    pen.to(w * 0.4F, 0.8F).to(w * 0.2F, y + 0.07F * size).to(w * (0.2F - 0.16F * size), y + 0.04F * size);
    pen.to(w * (0.2F - 0.12F * size), y - 0.07F * size).to(w * (0.22F + 0.1F * size), y - 0.06F * size);
    pen.to(w * 0.6F, y + 0.05F).to(w * r.uniform(0.95F, 1.25F), end_y);
  } else {  // a wave
    pen.to(w * 0.3F, 0.82F).to(w * r.uniform(-0.02F, 0.1F), r.uniform(0.95F, 1.0F));
    pen.to(w * 0.3F, r.uniform(0.86F, 0.93F))
        .to(w * 0.65F, 0.98F)
        .to(w * r.uniform(0.95F, 1.15F), r.uniform(0.86F, 0.98F));
  }
}

void draw_3(Pen& pen, DigitRandom& r) {
  const float w = r.uniform(0.45F, 0.8F);
  const float middle = r.uniform(0.4F, 0.5F);
  const float inner = r.uniform(0.25F, 0.6F);
  pen.lift();
  if (r.chance(0.12F)) {  // a flat top
    pen.to(0.02F, 0.02F).corner(w * 0.9F, 0.0F).to(w * 0.6F, middle * 0.6F).corner(w * inner, middle);
  } else {
    pen.to(w * r.uniform(-0.05F, 0.12F), r.uniform(0.05F, 0.22F)).to(w * 0.3F, r.uniform(0.0F, 0.04F));
    pen.to(w * 0.65F, 0.0F).to(w * r.uniform(0.82F, 0.98F), middle * 0.45F).to(w * 0.7F, middle * 0.85F);
    if (r.chance(0.25F))  // a small loop between the bows
      pen.to(w * inner, middle + 0.02F).to(w * (inner - 0.1F), middle - 0.03F).to(w * (inner + 0.05F), middle - 0.04F);
    else
      pen.corner(w * inner, middle);
  }
  pen.to(w * 0.78F, middle + 0.07F).to(w * r.uniform(0.92F, 1.08F), middle + (1 - middle) * 0.5F);
  pen.to(w * 0.75F, 0.96F).to(w * 0.4F, 1.0F).to(w * r.uniform(0.05F, 0.2F), r.uniform(0.9F, 1.0F));
  if (r.chance(0.6F)) pen.to(w * r.uniform(-0.1F, 0.05F), r.uniform(0.78F, 0.92F));
}

void draw_4(Pen& pen, DigitRandom& r) {
  const float w = r.uniform(0.5F, 0.85F);
  const float bar = r.uniform(0.42F, 0.66F);
  const float form = r.uniform();
  const float foot = w * r.uniform(0.55F, 0.85F);
  const float right = w * r.uniform(0.72F, 0.95F);
  if (form < 0.2F) {  // closed: a triangle and a stem
    pen.lift().to(right, 0).to(w * 0.4F, bar * 0.55F).corner(0, bar).to(w * 0.5F, bar + r.normal(0, 0.02F));
    pen.to(w * r.uniform(1.0F, 1.2F), bar + r.normal(0, 0.03F));
    pen.lift().to(right, r.uniform(0, 0.1F)).to((right + foot) * 0.5F, 0.5F).to(foot, 1);
  } else if (form < 0.65F) {  // open, with corners
    const float left = w * r.uniform(0.0F, 0.2F);
    pen.lift().to(left, r.uniform(0.0F, 0.14F)).to(left * 0.6F, bar * 0.5F).corner(0, bar);
    pen.to(w * 0.5F, bar + r.normal(0, 0.02F)).to(w * r.uniform(0.85F, 1.2F), bar + r.normal(-0.01F, 0.04F));
    pen.lift().to(right, r.uniform(-0.05F, 0.2F)).to((right + foot) * 0.5F, 0.52F).to(foot, 1);
  } else if (form < 0.8F) {  // open, the left side a bowl
    const float left = w * r.uniform(0.0F, 0.15F);
    pen.lift().to(left, r.uniform(0.0F, 0.12F)).to(0, bar * 0.6F).to(w * 0.15F, bar * 0.95F);
    pen.to(w * 0.5F, bar).to(w * r.uniform(0.8F, 1.1F), bar * r.uniform(0.82F, 1.0F));
    pen.lift().to(right, r.uniform(-0.05F, 0.15F)).to((right + foot) * 0.5F, 0.52F).to(foot, 1);
  } else {  // in one go: down, across, up and down again
    const float left = w * r.uniform(0.0F, 0.15F);
    pen.lift().to(left, r.uniform(0.0F, 0.14F)).to(0, bar * 0.65F).to(w * 0.2F, bar).to(w * 0.55F, bar * 0.9F);
    pen.corner(right, r.uniform(-0.05F, 0.1F)).to((right + foot) * 0.5F, 0.55F).to(foot, 1);
  }
}

void draw_5(Pen& pen, DigitRandom& r) {
  const float w = r.uniform(0.45F, 0.85F);
  const float neck = r.uniform(0.32F, 0.5F);  // where the bowl begins
  const float left = w * r.uniform(0.0F, 0.25F);
  const float bow = w * r.uniform(0.8F, 1.05F);
  const float bar_end = w * r.uniform(0.7F, 1.25F);
  const float bar_y = r.normal(0, 0.05F);
  const bool joined = r.chance(0.5F);
  pen.lift();
  if (joined) pen.to(bar_end, bar_y).to(bar_end * 0.6F + left * 0.4F, bar_y * 0.5F);
  const float top = joined ? 0.0F : r.uniform(-0.02F, 0.08F);
  if (r.chance(0.3F))
    pen.to(w * 0.3F, top).to(left, neck * 0.5F).to(left + w * 0.08F, neck * 0.9F);
  else
    pen.corner(left + w * r.uniform(0.0F, 0.2F), top).corner(left, neck);
  pen.to(w * 0.5F, neck - r.uniform(-0.02F, 0.08F)).to(bow * 0.92F, neck + (1 - neck) * 0.25F);
  pen.to(bow * 0.97F, neck + (1 - neck) * 0.6F).to(w * 0.6F, 0.98F).to(w * 0.25F, r.uniform(0.95F, 1.02F));
  pen.to(w * r.uniform(-0.15F, 0.1F), r.uniform(0.8F, 0.97F));
  if (!joined) {
    const float start = left + w * r.uniform(0.0F, 0.25F);
    pen.lift().to(start, top + r.normal(0, 0.02F)).to((start + bar_end) * 0.5F, bar_y * 0.6F).to(bar_end, bar_y);
  }
}

void draw_6(Pen& pen, DigitRandom& r) {
  const float w = r.uniform(0.35F, 0.95F);
  const float loop = r.uniform(0.36F, 0.62F);  // height of the loop
  const float cy = 1.0F - loop * 0.5F;
  const float top_x = r.chance(0.3F) ? w * r.uniform(0.0F, 0.4F) : w * r.uniform(0.35F, 1.1F);
  pen.lift();
  if (r.chance(0.25F)) pen.to(top_x + w * r.uniform(0.05F, 0.2F), r.uniform(0.02F, 0.12F));
  pen.to(top_x, r.uniform(-0.02F, 0.03F)).to(top_x * 0.45F, 0.25F).to(w * r.uniform(0.0F, 0.08F), cy - loop * 0.15F);
  pen.to(w * 0.08F, cy + loop * 0.25F).to(w * 0.42F, 1.0F).to(w * 0.85F, cy + loop * 0.28F);
  pen.to(w * r.uniform(0.88F, 1.02F), cy - loop * 0.1F).to(w * 0.62F, cy - loop * 0.5F);
  pen.to(w * 0.3F, cy - loop * r.uniform(0.25F, 0.45F));
  if (r.chance(0.75F)) pen.to(w * r.uniform(-0.02F, 0.15F), cy + loop * r.uniform(-0.1F, 0.2F));
}

void draw_7(Pen& pen, DigitRandom& r) {
  const float w = r.uniform(0.5F, 0.9F);
  const float foot = w * r.uniform(0.1F, 0.65F);
  const float right_y = r.normal(0.0F, 0.05F);
  pen.lift();
  if (r.chance(0.3F)) pen.to(w * r.uniform(-0.04F, 0.06F), r.uniform(0.12F, 0.28F));
  const float left_y = r.normal(0.04F, 0.05F);
  if (r.chance(0.5F))
    pen.corner(0, left_y);
  else
    pen.to(0, left_y + 0.03F);
  pen.to(w * 0.5F, (left_y + right_y) * 0.5F - r.uniform(-0.03F, 0.05F));
  if (r.chance(0.6F))
    pen.corner(w, right_y);
  else
    pen.to(w * 0.92F, right_y).to(w * 0.97F, right_y + 0.1F);
  const float bow = r.normal(-0.03F, 0.07F);
  pen.to(w * 0.65F + foot * 0.35F + bow * 0.7F, 0.35F).to(w * 0.3F + foot * 0.7F + bow, 0.65F).to(foot, 1);
  if (r.chance(0.22F)) {
    const float y = r.uniform(0.42F, 0.6F);
    const float x = w * 0.45F + foot * 0.5F;
    const float half = w * r.uniform(0.22F, 0.4F);
    pen.lift().to(x - half, y + r.normal(0.02F, 0.03F)).to(x + half, y + r.normal(-0.02F, 0.03F));
  }
}

// Two rings, one on the other.
void draw_8_rings(Pen& pen, DigitRandom& r, float w, float top, float cross) {
  const float x = w * 0.5F;
  pen.lift().arc(x, cross * 0.5F, top * 0.5F, cross * 0.5F, r.normal(0.25F, 0.1F), -r.uniform(0.95F, 1.05F));
  pen.lift().arc(x + r.normal(0, 0.05F), cross + (1 - cross) * 0.5F, w * 0.5F, (1 - cross) * 0.5F,
                 r.normal(-0.25F, 0.1F), -r.uniform(0.95F, 1.05F));
}

// One line: over the top, through the crossing, round below and back up to where it began, or nearly.
void draw_8(Pen& pen, DigitRandom& r) {
  const float w = r.uniform(0.3F, 0.8F);
  const float cross = r.uniform(0.36F, 0.58F);
  const float top = w * r.uniform(0.6F, 1.25F);  // width of the upper loop
  if (r.chance(0.12F)) return draw_8_rings(pen, r, w, top, cross);
  const float x = w * 0.5F;
  const float down = 1.0F - cross;
  const float gap = r.chance(0.45F) ? r.uniform(0.0F, 0.25F) : 0.0F;  // left open at the upper right
  const float waist = w * r.uniform(0.0F, 0.14F);
  const float belly = w * r.uniform(0.34F, 0.5F);
  pen.lift().to(x + top * r.uniform(0.2F, 0.5F), cross * r.uniform(0.05F, 0.3F));
  pen.to(x + top * r.uniform(-0.1F, 0.1F), 0).to(x - top * 0.46F, cross * 0.4F).to(x - top * 0.24F, cross * 0.8F);
  pen.to(x + waist, cross).to(x + belly, cross + down * 0.42F).to(x + belly * 0.8F, cross + down * 0.82F);
  pen.to(x + w * r.uniform(-0.12F, 0.06F), 1).to(x - belly, cross + down * 0.76F);
  pen.to(x - belly * 0.85F, cross + down * r.uniform(0.3F, 0.48F)).to(x - waist, cross + down * 0.04F);
  if (r.chance(0.35F)) {  // a straight way back
    pen.to(x + top * r.uniform(0.4F, 0.7F) + gap * 0.6F, cross * r.uniform(0.0F, 0.25F));
  } else {
    pen.to(x + top * 0.36F + gap * 0.4F, cross * 0.64F);
    pen.to(x + top * r.uniform(0.3F, 0.52F) + gap, cross * r.uniform(0.08F, 0.35F));
  }
}

void draw_9(Pen& pen, DigitRandom& r) {
  const float w = r.uniform(0.4F, 0.7F);
  const float loop = r.uniform(0.36F, 0.55F);
  const float right = w * r.uniform(0.9F, 1.05F);
  pen.lift().to(right, loop * r.uniform(0.12F, 0.4F)).to(w * 0.7F, r.uniform(-0.02F, 0.05F));
  pen.to(w * 0.35F, r.uniform(0.0F, 0.06F)).to(0, loop * 0.55F).to(w * 0.3F, loop);
  pen.to(w * 0.7F, loop * r.uniform(0.8F, 0.95F));
  const float foot = w * r.uniform(0.35F, 1.0F);
  if (r.chance(0.45F))
    pen.corner(right, loop * r.uniform(0.05F, 0.3F));
  else
    pen.to(right * 0.97F, loop * r.uniform(0.35F, 0.55F));
  if (r.chance(0.3F)) {  // a hook below
    pen.to(right, 0.6F)
        .to(right * 0.92F, 0.85F)
        .to(w * 0.55F, 1.0F)
        .to(w * r.uniform(-0.05F, 0.25F), r.uniform(0.84F, 0.95F));
  } else {
    pen.to((right + foot) * 0.5F + r.normal(0.03F, 0.03F), 0.62F).to(foot, 1);
  }
}

}  // namespace

Drawing draw_digit(int digit, DigitRandom& random) {
  Drawing drawing;
  Pen pen(drawing, random);
  using Draw = void (*)(Pen&, DigitRandom&);
  static constexpr Draw kDraw[] = {draw_0, draw_1, draw_2, draw_3, draw_4, draw_5, draw_6, draw_7, draw_8, draw_9};
  kDraw[digit](pen, random);
  return drawing;
}

}  // namespace athanor::data::detail
