// Depthwise convolutions of a rectified image: forward and backward.
//
// An image is rectified once into a padded copy, which all kernels of a call read. A row of the copy is a flat array. A
// tap is that array from some offset on, times weights that repeat with the channels. Taps of strided kernels would
// skip pixels: for these, even and odd columns are stored in separate planes, where neighbours are adjacent again.

#pragma once

#include "mix.hpp"
#include "walks.hpp"

namespace {

struct Kernel {  // the layout of the caller's table of 64-bit numbers
    const float* weights;  // [channels][size][size]
    Index size, dilation;
    float* by_weight;  // receives the gradient; null if it is not wanted

    Index pad() const { return dilation * (size / 2); }
    Index taps() const { return size * size; }
};

struct Shape {
    Index batch, height, width, channels, stride;

    Index out_height() const { return (height - 1) / stride + 1; }
    Index out_width() const { return (width - 1) / stride + 1; }
    Index pixels() const { return height * width; }
    Index out_pixels() const { return out_height() * out_width(); }
};

// The part of a kernel whose taps read one plane. Taps are numbered by `_step` from `_first`. Their inputs are
// `spacing` pixels apart from column to column.
struct Taps {
    Index row_first, row_step, rows;
    Index column_first, column_step, columns;
    Index spacing;
    Index row, column, plane;    // of the first tap's pixel, for the first pixel that is written
    Index to_row, to_plane;      // its output: every row or every other row, every column or one plane
    const float* weights;        // [rows][columns][period]

    Index count() const { return rows * columns; }
};

constexpr Index MOST_PARTS = 4;  // of a kernel

struct Parts {
    Taps taps[MOST_PARTS];
    Index count = 0;
};

// Rows of pixels with a border of zeros, in planes by column; loads may read the zeros at the end of each row.
struct Padded {
    Index pad, stride, rows, channels;
    Index plane, pitch;  // floats of a plane of a row, and of all of them

    Padded(Index height, Index width, Index channels_, Index pad_, Index stride_)
        : pad(pad_), stride(stride_), rows(height + 2 * pad_), channels(channels_) {
        const Index most = (width + 2 * pad + stride - 1) / stride;
        plane = round_up(most * channels, LANES) + LANES;
        pitch = stride * plane;
    }

    Index floats() const { return rows * pitch + LANES; }
    float* row(float* start, Index number) const { return start + number * pitch; }

    // The position of the first column of an image and of every stride-th column after it.
    float* columns(float* start, Index number, Index first) const {
        const Index column = pad + first;
        return row(start, number + pad) + column % stride * plane + column / stride * channels;
    }

    // Write a row of pixels and leave its border unchanged.
    void place(float* start, Index number, const float* values, Index width) const {
        for (Index first = 0; first < stride; ++first)
            copy_pixels(
                columns(start, number, first), channels, values + first * channels, stride * channels,
                (width - first + stride - 1) / stride, channels
            );
    }

    void take(float* start, Index number, float* values, Index width) const {
        for (Index first = 0; first < stride; ++first)
            copy_pixels(
                values + first * channels, stride * channels, columns(start, number, first), channels,
                (width - first + stride - 1) / stride, channels
            );
    }
};

// --- which taps read which plane

// Forward: column x of the output reads column stride * x + tap * dilation - pad.
inline Parts forward_parts(const Kernel& kernel, Index stride, Index pad) {
    const Index size = kernel.size, start = pad - kernel.pad(), planes = stride == 2 && kernel.dilation == 1 ? 2 : 1;
    Parts parts;
    for (Index first = 0; first < planes; ++first) {
        const Index column = start + first;
        parts.taps[parts.count++] = Taps{
            0, 1, size,
            first, planes, (size - first + planes - 1) / planes,
            stride == 1 ? kernel.dilation : 1,
            start, column / stride, column % stride,
            0, 0, nullptr,
        };
    }
    return parts;
}

struct Line {  // taps along one direction that reach pixels of one parity, from last to first
    Index first, step, count;
    Index start;  // the position in the gradient that the first of them reads
};

// Backward: pixel stride * x + parity reads x + (parity + pad - tap * dilation) / stride, where that is an integer.
inline Line backward_line(const Kernel& kernel, Index stride, Index parity) {
    const Index pad = kernel.pad(), spacing = kernel.dilation % stride == 0 ? 1 : stride;
    for (Index first = kernel.size - 1; first > kernel.size - 1 - spacing; --first) {
        const Index reach = parity + pad - first * kernel.dilation;
        if (reach % stride == 0) return {first, -spacing, first / spacing + 1, reach / stride};
    }
    return {0, 1, 0, 0};
}

// The gradient is padded by `pad`.
inline Parts backward_parts(const Kernel& kernel, Index stride, Index pad) {
    Parts parts;
    for (Index row = 0; row < stride; ++row)
        for (Index column = 0; column < stride; ++column) {
            const Line down = backward_line(kernel, stride, row), along = backward_line(kernel, stride, column);
            if (down.count == 0 || along.count == 0) continue;
            parts.taps[parts.count++] = Taps{
                down.first, down.step, down.count,
                along.first, along.step, along.count,
                stride == 1 ? kernel.dilation : 1,
                pad + down.start, pad + along.start, 0,
                row, column, nullptr,
            };
        }
    return parts;
}

// Weights in the order of the taps, repeated for a period.
inline float* lay_out(Parts& parts, const Kernel& kernel, Index channels, Index period, float* to) {
    for (Index part = 0; part < parts.count; ++part) {
        Taps& taps = parts.taps[part];
        taps.weights = to;
        for (Index row = 0; row < taps.rows; ++row)
            for (Index column = 0; column < taps.columns; ++column, to += period) {
                const Index tap = (taps.row_first + row * taps.row_step) * kernel.size + taps.column_first
                                  + column * taps.column_step;
                for (Index channel = 0; channel < channels; ++channel)
                    to[channel] = kernel.weights[channel * kernel.taps() + tap];
                for (Index entry = channels; entry < period; ++entry) to[entry] = to[entry - channels];
            }
    }
    return to;
}

// --- rectifying

// Normalise, if there are moments, and rectify; NaN stays NaN.
struct Rectifier {
    Index channels, period;
    Buffer<float> tables;
    bool normalizes;

    Rectifier(const float* moments, const Cut& cut)
        : channels(cut.channels), period(cut.period), tables(2 * cut.period), normalizes(moments != nullptr) {
        if (!normalizes) return;
        repeat(tables.at(0), moments, channels, period);
        repeat(tables.at(period), moments + channels, channels, period);
    }

    void rectify(float* to, const float* values, Index floats) const {
        const Vector zero = {};
        if (normalizes)
            sweep(both(), period, floats, [=](auto place, const Vector* table, Vector*) __attribute__((always_inline)) {
                const Vector value = (place.get(values) - table[0]) * table[1];
                place.put(to, value < zero ? zero : value);
            });
        else
            sweep(Tables<0>{}, period, floats, [=](auto place, const Vector*, Vector*) __attribute__((always_inline)) {
                const Vector value = place.get(values);
                place.put(to, value < zero ? zero : value);
            });
    }

    // The gradient where the image is positive, zero elsewhere.
    template <bool ADD>
    void mask(float* to, const float* gradient, const float* values, Index floats) const {
        const Vector zero = {};
        if (normalizes)
            sweep(both(), period, floats, [=](auto place, const Vector* table, Vector*) __attribute__((always_inline)) {
                const Vector value = (place.get(values) - table[0]) * table[1];
                Vector result = value > zero ? place.get(gradient) : zero;
                if constexpr (ADD) result += place.get(to);
                place.put(to, result);
            });
        else
            sweep(Tables<0>{}, period, floats, [=](auto place, const Vector*, Vector*) __attribute__((always_inline)) {
                Vector result = place.get(values) > zero ? place.get(gradient) : zero;
                if constexpr (ADD) result += place.get(to);
                place.put(to, result);
            });
    }

  private:
    Tables<2> both() const { return {{tables.at(0), tables.at(period)}}; }
};

// --- forward

inline Index widest_pad(const Kernel* kernels, Index count) {
    Index pad = 0;
    for (Index kernel = 0; kernel < count; ++kernel) pad = kernels[kernel].pad() > pad ? kernels[kernel].pad() : pad;
    return pad;
}

inline Index all_taps(const Kernel* kernels, Index count) {
    Index taps = 0;
    for (Index kernel = 0; kernel < count; ++kernel) taps += kernels[kernel].taps();
    return taps;
}

// Write the padded, rectified copy of one image. row: memory for two rows of pixels.
inline void rectify_image(
    const Image& image, Index number, const Shape& shape, const Rectifier& rectifier, const Padded& padded, float* to,
    float* row
) {
    const Index floats = shape.width * shape.channels;
    for (Index y = 0; y < shape.height; ++y) {
        const Index first = number * shape.pixels() + y * shape.width;
        const float* values = flat(image, first, shape.width, shape.channels, row);
        if (padded.stride == 1) {
            rectifier.rectify(padded.columns(to, y, 0), values, floats);
        } else {
            rectifier.rectify(row + floats, values, floats);
            padded.place(to, y, row + floats, shape.width);
        }
    }
}

inline void depthwise(
    const Image& image, const float* moments, const Shape& shape, const Kernel* kernels, Index count, float* out,
    Index threads_given
) {
    const Index channels = shape.channels, period = std::lcm(channels, LANES);
    const Index pad = widest_pad(kernels, count), row_floats = shape.width * channels;
    const Index out_floats = shape.out_pixels() * channels;
    const Cut cut(shape.pixels(), channels);
    const Rectifier rectifier(moments, cut);
    const Padded padded(shape.height, shape.width, channels, pad, shape.stride);
    const int threads = thread_count(threads_given, shape.batch, shape.batch * shape.pixels() * channels);

    Buffer<Parts> parts(count);
    Buffer<float> weights(all_taps(kernels, count) * period);
    float* next = weights.at(0);
    for (Index kernel = 0; kernel < count; ++kernel) {
        parts[kernel] = forward_parts(kernels[kernel], shape.stride, pad);
        next = lay_out(parts[kernel], kernels[kernel], channels, period, next);
    }

    const Index padded_floats = round_up(padded.floats(), LANES);
    const Index work = padded_floats + round_up(2 * row_floats, LANES);
    Buffer<float> works(threads * work);
    works.clear();
    share(shape.batch, threads, [&](Index first, Index last, int share_number) {
        float* copy = works.at(share_number * work);
        for (Index number = first; number < last; ++number) {
            rectify_image(image, number, shape, rectifier, padded, copy, copy + padded_floats);
            for (Index kernel = 0; kernel < count; ++kernel)
                for (Index part = 0; part < parts[kernel].count; ++part) {
                    const Taps& taps = parts[kernel].taps[part];
                    walk_over(
                        Walk{
                            padded.row(copy, taps.row) + taps.plane * padded.plane + taps.column * channels,
                            shape.stride * padded.pitch, kernels[kernel].dilation * padded.pitch, taps.rows,
                            taps.spacing * channels, taps.weights, period,
                            out + (kernel * shape.batch + number) * out_floats, shape.out_width() * channels,
                            shape.out_height(), shape.out_width() * channels, part > 0,
                        },
                        taps.columns
                    );
                }
        }
    });
}

// --- backward

struct Backward {
    Image image;
    const float* moments;
    Shape shape;
    const Kernel* kernels;
    Index count;
    const float* gradients;  // of the kernels' results: images `gradient_kernel` floats apart
    Index gradient_kernel, gradient_pixel;
    Image slot;
    bool filled, weights_wanted;

    bool image_wanted() const { return slot.data != nullptr; }
};

// Memory that a thread needs for one image, as offsets in floats.
struct BackwardWork {
    Padded rectified, gradient, result;
    Index gradient_at, result_at, sums_at, rows_at, floats;

    BackwardWork(const Shape& shape, Index pad, Index most_taps, Index period, const Cut& cut)
        : rectified(shape.height, shape.width, shape.channels, pad, shape.stride),
          // a kernel extends past the gradient by its pad, in steps of the stride
          gradient(shape.out_height(), shape.out_width(), shape.channels, shape.stride == 1 ? pad : pad / 2 + 1, 1),
          result(shape.height, shape.width, shape.channels, 0, shape.stride) {
        const Index row = shape.width * shape.channels, longest = row > cut.floats() ? row : cut.floats();
        gradient_at = round_up(rectified.floats(), LANES);
        result_at = gradient_at + round_up(gradient.floats(), LANES);
        sums_at = result_at + round_up(result.floats(), LANES);
        rows_at = sums_at + (most_taps * period > cut.period ? most_taps * period : cut.period);
        floats = rows_at + round_up(3 * longest, LANES);
    }
};

inline void pad_gradient(const Backward& task, Index kernel, Index number, const BackwardWork& work, float* memory) {
    const Shape& shape = task.shape;
    const Image gradient{const_cast<float*>(task.gradients) + kernel * task.gradient_kernel, task.gradient_pixel};
    for (Index y = 0; y < shape.out_height(); ++y) {
        const Index first = number * shape.out_pixels() + y * shape.out_width();
        copy_pixels(
            work.gradient.columns(memory + work.gradient_at, y, 0), shape.channels,
            gradient.data + first * gradient.pixel, gradient.pixel, shape.out_width(), shape.channels
        );
    }
}

// Add the contribution of one kernel's padded gradient to the gradient of the image.
inline void walk_back(
    const Backward& task, const Kernel& kernel, const Parts& parts, Index period, bool add, const BackwardWork& work,
    float* memory
) {
    const Shape& shape = task.shape;
    const Index stride = shape.stride, channels = shape.channels;
    for (Index part = 0; part < parts.count; ++part) {
        const Taps& taps = parts.taps[part];
        walk_over(
            Walk{
                work.gradient.row(memory + work.gradient_at, taps.row) + taps.column * channels,
                work.gradient.pitch, (stride == 1 ? kernel.dilation : 1) * work.gradient.pitch, taps.rows,
                taps.spacing * channels, taps.weights, period,
                work.result.row(memory + work.result_at, taps.to_row) + taps.to_plane * work.result.plane,
                stride * work.result.pitch, (shape.height - taps.to_row + stride - 1) / stride,
                (shape.width - taps.to_plane + stride - 1) / stride * channels, add,
            },
            taps.columns
        );
    }
}

// Compute one image's part of the gradient of a kernel's weights, [taps][channels].
inline void weigh_back(
    const Backward& task, const Kernel& kernel, const Parts& parts, Index period, const BackwardWork& work,
    float* memory, float* by_weight
) {
    const Shape& shape = task.shape;
    const Index channels = shape.channels;
    float* sums = memory + work.sums_at;
    for (Index part = 0; part < parts.count; ++part) {
        const Taps& taps = parts.taps[part];
        sum_products(
            Products{
                work.rectified.row(memory, taps.row) + taps.plane * work.rectified.plane + taps.column * channels,
                shape.stride * work.rectified.pitch, kernel.dilation * work.rectified.pitch, taps.spacing * channels,
                work.gradient.columns(memory + work.gradient_at, 0, 0), work.gradient.pitch,
                shape.out_height(), shape.out_width() * channels, period, sums,
            },
            taps.rows, taps.columns
        );
        for (Index tap = 0; tap < taps.count(); ++tap) {
            const Index row = taps.row_first + tap / taps.columns * taps.row_step;
            const Index column = taps.column_first + tap % taps.columns * taps.column_step;
            float* to = by_weight + (row * kernel.size + column) * channels;
            for (Index channel = 0; channel < channels; ++channel) to[channel] = 0.0f;
            for (Index start = 0; start < period; start += channels)
                for (Index channel = 0; channel < channels; ++channel)
                    to[channel] += sums[tap * period + start + channel];
        }
    }
}

// Propagate the result of one image through ReLU: into the slot, or into `masked` where normalisation follows.
inline void unrectify(
    const Backward& task, Index number, const Rectifier& rectifier, const BackwardWork& work, float* memory,
    float* masked
) {
    const Shape& shape = task.shape;
    const Index channels = shape.channels, floats = shape.width * channels;
    float *values_copy = memory + work.rows_at, *joined = values_copy + floats, *slot_copy = joined + floats;
    for (Index y = 0; y < shape.height; ++y) {
        const Index first = number * shape.pixels() + y * shape.width;
        const float* values = flat(task.image, first, shape.width, channels, values_copy);
        const float* gradient = work.result.row(memory + work.result_at, y);
        if (shape.stride > 1) {
            work.result.take(memory + work.result_at, y, joined, shape.width);
            gradient = joined;
        }
        if (masked != nullptr)
            rectifier.mask<false>(masked + first * channels, gradient, values, floats);
        else
            through_copy(task.slot, task.filled, first, shape.width, channels, slot_copy, [&](float* to, bool add) {
                add ? rectifier.mask<true>(to, gradient, values, floats)
                    : rectifier.mask<false>(to, gradient, values, floats);
            });
    }
}

// Sums over one image of the gradient, and of its products with the image less its mean: [2][channels].
inline void add_image(
    const Backward& task, Index number, const float* mean, const Cut& cut, const BackwardWork& work, float* memory,
    const float* masked, double* totals
) {
    const Index channels = cut.channels;
    for (Index block = 0; block < cut.blocks; ++block) {
        const Index first = number * cut.pixels + cut.first(block), pixels = cut.count(block);
        const float* values = flat(task.image, first, pixels, channels, memory + work.rows_at);
        const float* gradient = masked + first * channels;
        float* sums = memory + work.sums_at;
        add_gradients(gradient, cut, pixels, sums, totals);
        add_products(gradient, values, mean, cut, pixels, sums, totals + channels);
    }
}

// Propagate through normalisation into the slot. rows: the sums of add_image, per image.
inline void unnormalize(const Backward& task, double* rows, const float* masked, int threads) {
    const Shape& shape = task.shape;
    const Index channels = shape.channels;
    const Cut cut(shape.batch * shape.pixels(), channels);
    const double* sums = add_rows(rows, shape.batch, 2 * channels);
    Buffer<float> tables(Slope::TABLES * cut.period), copies(threads * 2 * cut.floats());
    Slope::set(tables.at(0), task.moments, 1.0, sums, sums + channels, cut);
    const Term term{task.image, const_cast<float*>(task.moments), 0, task.slot, task.filled};
    share(cut.blocks, threads, [&](Index first, Index last, int number) {
        for (Index block = first; block < last; ++block)
            write_gradient(
                term, 1.0f, masked + cut.first(block) * channels, tables.at(0), cut, block,
                copies.at(number * 2 * cut.floats())
            );
    });
}

// Add up the images' parts, [batch][all taps][channels], in order.
inline void sum_by_weight(const Backward& task, const float* parts, Index all) {
    const Index channels = task.shape.channels;
    Buffer<double> sums(all * channels);
    sums.clear();
    for (Index number = 0; number < task.shape.batch; ++number)
        for (Index entry = 0; entry < all * channels; ++entry)
            sums[entry] += double(parts[number * all * channels + entry]);
    const double* from = sums.at(0);
    for (Index kernel = 0; kernel < task.count; ++kernel)
        for (Index tap = 0; tap < task.kernels[kernel].taps(); ++tap, from += channels)
            for (Index channel = 0; channel < channels; ++channel)
                task.kernels[kernel].by_weight[channel * task.kernels[kernel].taps() + tap] = float(from[channel]);
}

inline void depthwise_backward(const Backward& task, Index threads_given) {
    const Shape& shape = task.shape;
    const Index channels = shape.channels, period = std::lcm(channels, LANES), batch = shape.batch;
    const Index pad = widest_pad(task.kernels, task.count), all = all_taps(task.kernels, task.count);
    const Cut cut(shape.pixels(), channels);
    const Rectifier rectifier(task.moments, cut);
    const BackwardWork work(shape, pad, 49, period, cut);
    const int threads = thread_count(threads_given, batch, batch * shape.pixels() * channels);

    Buffer<Parts> forward(task.count), backward(task.count);
    Buffer<float> weights(all * period);
    float* next = weights.at(0);
    for (Index kernel = 0; kernel < task.count; ++kernel) {
        forward[kernel] = forward_parts(task.kernels[kernel], shape.stride, pad);
        backward[kernel] = backward_parts(task.kernels[kernel], shape.stride, work.gradient.pad);
        next = lay_out(backward[kernel], task.kernels[kernel], channels, period, next);
    }

    const bool through_moments = task.moments != nullptr && task.image_wanted();
    Buffer<float> memories(threads * work.floats), parts(task.weights_wanted ? batch * all * channels : 0);
    Buffer<float> masked(through_moments ? batch * shape.pixels() * channels : 0);
    Buffer<double> totals(batch * 2 * channels);
    memories.clear();
    totals.clear();
    share(batch, threads, [&](Index first, Index last, int share_number) {
        float* memory = memories.at(share_number * work.floats);
        for (Index number = first; number < last; ++number) {
            if (task.weights_wanted)
                rectify_image(task.image, number, shape, rectifier, work.rectified, memory, memory + work.rows_at);
            if (shape.stride > 1)  // kernels leave out rows and columns
                std::memset(memory + work.result_at, 0, std::size_t(work.result.floats()) * sizeof(float));
            float* part = parts.at(number * all * channels);
            for (Index kernel = 0; kernel < task.count; ++kernel) {
                pad_gradient(task, kernel, number, work, memory);
                if (task.image_wanted())
                    walk_back(task, task.kernels[kernel], backward[kernel], period, kernel > 0, work, memory);
                if (task.weights_wanted) {
                    weigh_back(task, task.kernels[kernel], forward[kernel], period, work, memory, part);
                    part += task.kernels[kernel].taps() * channels;
                }
            }
            if (task.image_wanted())
                unrectify(task, number, rectifier, work, memory, through_moments ? masked.at(0) : nullptr);
            if (through_moments)
                add_image(
                    task, number, rectifier.tables.at(0), cut, work, memory, masked.at(0),
                    totals.at(number * 2 * channels)
                );
        }
    });
    if (task.weights_wanted) sum_by_weight(task, parts.at(0), all);
    if (through_moments) unnormalize(task, totals.at(0), masked.at(0), threads);
}

}  // namespace
