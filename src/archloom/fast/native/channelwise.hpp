// Depthwise convolutions of feature maps (see maps.hpp), forward and backward.
//
// The image is rectified, and may be normalised before, as it is read. Rows that a kernel reads are copied with zeros at
// both ends, unless the column of zeros that maps have is enough.

#pragma once

#include "dense.hpp"
#include "sums.hpp"

namespace {

constexpr Index MOST_TAPS = 5;  // along one direction

struct Depthwise {
    Map in, out;
    Index kernel, stride, dilation;

    Index pad() const { return dilation * (kernel / 2); }
    Index taps() const { return kernel * kernel; }
    Index span() const { return (kernel - 1) * dilation + 1; }  // rows from the first tap to the last
    Index kept() const { return out.channels * taps() * LANES; }
};

struct TapRows {  // the rows that one row of results reads, each with its row of the kernel
    Index pixel;
    const float* start[MOST_TAPS];  // the pixel that the first column of the kernel reads for the first result
    Index tap[MOST_TAPS];
    int count = 0;
};

// --- rows with zeros at both ends

// A ring of such rows. Row `number` of a map is written when it is first asked for.
class RowRing {
  public:
    RowRing(float* data, Index rows, Index columns, Index depth) : data_(data), rows_(rows), pitch_(columns * depth) {
        for (Index slot = 0; slot < rows_; ++slot) known_[slot] = -1;
    }

    static Index floats(Index rows, Index columns, Index depth) { return rows * columns * depth; }

    template <class Write>
    const float* row(Index number, Write write) {
        const Index slot = number % rows_;
        float* to = data_ + slot * pitch_;
        if (known_[slot] != number) {
            write(number, to);
            known_[slot] = number;
        }
        return to;
    }

  private:
    static constexpr Index MOST_ROWS = 2 * (MOST_TAPS - 1) + 1;
    float* data_;
    Index rows_, pitch_, known_[MOST_ROWS];
};

// How values are read: rectified, and normalised before if there are tables.
struct Reader {
    const NormTables* tables;

    ALWAYS Vector read(const float* from, Index channel, Vector mask) const {
        Vector value = load(from);
        if (tables != nullptr) value = (value * splat(tables->scale[channel]) + splat(tables->shift[channel])) * mask;
        return rectify(value);
    }
};

// Fill both ends of a row: with zeros, or with what the neighbouring segments have there.
inline void fill_ends(float* to, Index pad, Index width, Index depth, const Lot& lot) {
    float *first = to + pad * depth, *end = first + width * depth;
    if (lot.segments == 1) {
        std::memset(to, 0, std::size_t(pad * depth) * sizeof(float));
        std::memset(end, 0, std::size_t(pad * depth) * sizeof(float));
        return;
    }
    for (Index place = 0; place < pad * depth; place += LANES) {
        store(to + place, lot.from_left(load(end - pad * depth + place)));
        store(end + place, lot.from_right(load(first + place)));
    }
}

// --- results

constexpr int ROW_PIXELS = LANES == 16 ? 8 : 4;

template <int P, int K, int S, int D, class Put>
ALWAYS void depthwise_pixels(const TapRows& rows, Index x, Index channels, const float* packed, const Put& put) {
    constexpr int SPAN = (P - 1) * S + (K - 1) * D + 1;
    const Index start = x * S * rows.pixel;
    for (Index channel = 0; channel < channels; ++channel, packed += K * K) {
        Vector sums[P] = {};
        for (int row = 0; row < rows.count; ++row) {
            const float* from = rows.start[row] + start + channel * LANES;
            const float* weight = packed + rows.tap[row] * K;
            Vector values[SPAN];
#pragma GCC unroll 32
            for (int place = 0; place < SPAN; ++place) values[place] = load(from + place * rows.pixel);
#pragma GCC unroll 8
            for (int column = 0; column < K; ++column) {
                const Vector factor = splat(weight[column]);
#pragma GCC unroll 8
                for (int p = 0; p < P; ++p) sums[p] += values[p * S + column * D] * factor;
            }
        }
#pragma GCC unroll 8
        for (int p = 0; p < P; ++p) put(x + p, channel, sums[p]);
    }
}

template <int K, int S, int D, class Put>
inline void depthwise_row(const TapRows& rows, Index width, Index channels, const float* packed, const Put& put) {
    Index x = 0;
    for (; x + ROW_PIXELS <= width; x += ROW_PIXELS)
        depthwise_pixels<ROW_PIXELS, K, S, D>(rows, x, channels, packed, put);
    for (; x < width; ++x) depthwise_pixels<1, K, S, D>(rows, x, channels, packed, put);
}

// Rows of the image that a row of results reads. get(number): such a row, whose pixels are `pixel` floats apart, from
// the first column that the kernel reads on.
template <class Get>
inline TapRows rows_to_read(const Depthwise& of, Index number, Index pixel, Get get) {
    TapRows rows{pixel, {}, {}};
    const Index group = number / of.out.height, y = number % of.out.height;
    for (Index tap = 0; tap < of.kernel; ++tap) {
        const Index from = y * of.stride + tap * of.dilation - of.pad();
        if (from < 0 || from >= of.in.height) continue;
        rows.start[rows.count] = get(group * of.in.height + from);
        rows.tap[rows.count++] = tap;
    }
    return rows;
}

template <int K, int S, int D>
void depthwise_forward_row(const Depthwise& of, const TapRows& rows, const float* packed, float* to) {
    const Index pixel = of.out.pixel();
    depthwise_row<K, S, D>(rows, of.out.width, of.out.channels, packed, [=](Index x, Index channel, Vector value) {
        store(to + x * pixel + channel * LANES, value);
    });
}

using DepthwiseRow = void (*)(const Depthwise&, const TapRows&, const float*, float*);

template <int K>
inline DepthwiseRow depthwise_row_of(const Depthwise& of) {
    if (of.stride == 1) return of.dilation == 1 ? depthwise_forward_row<K, 1, 1> : depthwise_forward_row<K, 1, 2>;
    return of.dilation == 1 ? depthwise_forward_row<K, 2, 1> : depthwise_forward_row<K, 2, 2>;
}

inline DepthwiseRow depthwise_row_of(const Depthwise& of) {
    return of.kernel == 3 ? depthwise_row_of<3>(of) : depthwise_row_of<5>(of);
}

// [channel][row][column]; backward, columns are in the opposite order.
inline void pack_depthwise(const Depthwise& of, const Weights& weights, bool backward, float* to) {
    for (Index channel = 0; channel < of.out.channels; ++channel)
        for (Index row = 0; row < of.kernel; ++row)
            for (Index column = 0; column < of.kernel; ++column)
                *to++ = weights.at(channel, 0, row, backward ? of.kernel - 1 - column : column);
}

// Reads rows of the image for the forward pass.
struct DepthwiseForward {
    Depthwise of;
    const float *in, *packed;
    Reader reader;
    Lot lot;
    DepthwiseRow run;

    Index columns() const { return of.in.width + 2 * of.pad(); }
    Index room() const { return RowRing::floats(of.span(), columns(), of.in.depth()); }
    RowRing make_ring(float* data) const { return {data, of.span(), columns(), of.in.depth()}; }

    void row(Index number, RowRing& ring, float* to) const {
        const Index depth = of.in.depth();
        const auto read = [&](Index from, float* copy) { copy_row(from, copy); };
        run(of, rows_to_read(of, number, depth, [&](Index from) { return ring.row(from, read); }), packed, to);
    }

  private:
    void copy_row(Index number, float* to) const {
        const Index depth = of.in.depth(), pad = of.pad();
        const Vector mask = lot.mask(number / of.in.height);
        const float* from = of.in.row(in, number);
        float* pixel = to + pad * depth;
        for (Index x = 0; x < of.in.width; ++x, from += of.in.pixel(), pixel += depth)
            for (Index channel = 0; channel < of.in.channels; ++channel)
                store(pixel + channel * LANES, reader.read(from + channel * LANES, channel, mask));
        fill_ends(to, pad, of.in.width, depth, lot);
    }
};

// --- backward: from the gradient of a row of the image on, both gradients at once

// A row of the image gets something from rows of the gradient, spread to the columns of the image where the stride is
// 2. The same pairs of values make up the gradient of the weights.
struct DepthwiseBackward {
    Depthwise of;
    const float *in, *gradient, *packed;
    float* by_in;  // null where nothing asks for it
    bool add;
    Reader reader;
    Lot lot;

    Index columns() const { return of.in.width + 2 * of.pad(); }
    Index room() const { return RowRing::floats(of.span(), columns(), of.in.depth()); }
    RowRing make_ring(float* data) const { return {data, of.span(), columns(), of.in.depth()}; }
    bool is_direct() const { return of.stride == 1 && of.pad() == 1 && lot.segments == 1; }  // a map has such zeros

    TapRows rows(Index number, RowRing& ring) const {
        const Index depth = is_direct() ? of.out.pixel() : of.out.depth();
        TapRows found{depth, {}, {}};
        const Index group = number / of.in.height, y = number % of.in.height;
        const auto copy = [&](Index from, float* to) { spread_row(from, to); };
        for (Index tap = 0; tap < of.kernel; ++tap) {
            const Index reach = y + of.pad() - tap * of.dilation;
            if (reach < 0 || reach % of.stride != 0 || reach / of.stride >= of.out.height) continue;
            const Index from = group * of.out.height + reach / of.stride;
            found.start[found.count] = is_direct() ? of.out.row(gradient, from) - depth : ring.row(from, copy);
            found.tap[found.count++] = tap;
        }
        return found;
    }

    // kept: sums of the gradient of the weights, for every weight a vector.
    template <int K, int D>
    void row(Index number, RowRing& ring, float* kept) const {
        constexpr int P = LANES == 16 && K == 3 ? 8 : 4;
        const TapRows read = rows(number, ring);
        const Vector mask = lot.mask(number / of.in.height);
        Index x = 0;
        for (; x + P <= of.in.width; x += P) pixels<P, K, D>(read, number, x, mask, kept);
        for (; x < of.in.width; ++x) pixels<1, K, D>(read, number, x, mask, kept);
    }

  private:
    void spread_row(Index number, float* to) const {
        const Index depth = of.out.depth();
        const float* from = of.out.row(gradient, number);
        if (of.stride != 1) std::memset(to, 0, std::size_t(columns() * depth) * sizeof(float));
        float* first = to + of.pad() * depth;
        for (Index x = 0; x < of.out.width; ++x)
            std::memcpy(first + x * of.stride * depth, from + x * of.out.pixel(), std::size_t(depth) * sizeof(float));
        fill_ends(to, of.pad(), of.in.width, depth, lot);
    }

    template <int P, int K, int D>
    ALWAYS void pixels(const TapRows& read, Index number, Index x, Vector mask, float* kept) const {
        constexpr int SPAN = P + (K - 1) * D;
        const Index pixel = of.in.pixel();
        const float *values = of.in.row(in, number) + x * pixel, *weights = packed;
        float* to = by_in == nullptr ? nullptr : of.in.row(by_in, number) + x * pixel;
        for (Index channel = 0; channel < of.in.channels; ++channel, weights += K * K, kept += K * K * LANES) {
            Vector inputs[P], sums[P] = {};
#pragma GCC unroll 8
            for (int p = 0; p < P; ++p) inputs[p] = reader.read(values + p * pixel + channel * LANES, channel, mask);
            for (int row = 0; row < read.count; ++row) {
                const float* from = read.start[row] + x * read.pixel + channel * LANES;
                const float* weight = weights + read.tap[row] * K;
                float* sum = kept + read.tap[row] * K * LANES;
                Vector given[SPAN];
#pragma GCC unroll 16
                for (int place = 0; place < SPAN; ++place) given[place] = load(from + place * read.pixel);
#pragma GCC unroll 8
                for (int column = 0; column < K; ++column) {
                    const Vector factor = splat(weight[column]);
                    Vector total = load(sum + column * LANES);
#pragma GCC unroll 8
                    for (int p = 0; p < P; ++p) {
                        sums[p] += given[p + column * D] * factor;
                        total += given[p + column * D] * inputs[p];
                    }
                    store(sum + column * LANES, total);
                }
            }
            if (to == nullptr) continue;
#pragma GCC unroll 8
            for (int p = 0; p < P; ++p) {
                float* place = to + p * pixel + channel * LANES;
                const Vector value = where_positive(inputs[p], sums[p]);
                store(place, add ? load(place) + value : value);
            }
        }
    }
};

using DepthwiseBackwardRow = void (DepthwiseBackward::*)(Index, RowRing&, float*) const;

inline DepthwiseBackwardRow depthwise_backward_row_of(const Depthwise& of) {
    if (of.kernel == 3)
        return of.dilation == 1 ? &DepthwiseBackward::row<3, 1> : &DepthwiseBackward::row<3, 2>;
    return of.dilation == 1 ? &DepthwiseBackward::row<5, 1> : &DepthwiseBackward::row<5, 2>;
}

// Sums of all bands become the gradient of the weights. Columns of the sums are in the opposite order.
inline void finish_depthwise_weights(const Depthwise& of, const float* kept, Index bands, const Weights& result) {
    for (Index channel = 0; channel < of.out.channels; ++channel)
        for (Index row = 0; row < of.kernel; ++row)
            for (Index column = 0; column < of.kernel; ++column) {
                double sum = 0.0;
                const Index place = ((channel * of.kernel + row) * of.kernel + column) * LANES;
                for (Index band = 0; band < bands; ++band) sum += double(add_lanes(load(kept + band * of.kept() + place)));
                result.at(channel, 0, row, of.kernel - 1 - column) = float(sum);
            }
}

}  // namespace
