// Sums of feature maps (see maps.hpp): maps as they are, batch-normalised or average-pooled 3x3, forward and backward.
//
// A state of a cell is such a sum. Statistics are found row by row while a row is in the first cache, as mean and squared
// distances from it, and merged afterwards: nothing cancels.

#pragma once

#include <cmath>

#include "maps.hpp"

namespace {

struct Norm {
    Index map;              // what is normalised
    Index moments;          // place in the workspace, in vectors: rows of mean, 1/std, scale, shift
    Index pointers;         // of scale, shift, running mean, running variance and count: first place in the table
    Index by_scale, by_shift;  // places in the gradient of all parameters
    Index numbers;          // place of epsilon and momentum in the table of numbers
};

struct NormTables {
    float *mean, *deviation, *scale, *shift;  // deviation: 1 / standard deviation
    NormTables(float* start, Index channels)
        : mean(start), deviation(start + channels), scale(deviation + channels), shift(scale + channels) {}
};

struct NormParameters {  // null where a normalisation has none
    const float *scale, *shift;
    float *running_mean, *running_variance;
    std::int64_t* batches;
};

// --- statistics

// Statistics of some rows, for every channel and lane: rows of means, then of squared distances.
inline void add_row_statistics(const Map& map, const float* values, float* kept, Index before) {
    const Index pixel = map.pixel(), depth = map.depth();
    const float width = float(map.width), part = width / (width + float(before));
    for (Index channel = 0; channel < map.channels; ++channel) {
        const float* start = values + channel * LANES;
        Vector sum{}, squares{};
        for (Index x = 0; x < map.width; ++x) sum += load(start + x * pixel);
        const Vector mean = sum * splat(1.0f / width);
        for (Index x = 0; x < map.width; ++x) {
            const Vector distance = load(start + x * pixel) - mean;
            squares += distance * distance;
        }
        float *means = kept + channel * LANES, *distances = means + depth;
        if (before == 0) {
            store(means, mean);
            store(distances, squares);
        } else {
            const Vector known = load(means), step = mean - known;
            store(means, known + step * splat(part));
            store(distances, load(distances) + squares + step * step * splat(part * float(before)));
        }
    }
}

// Merge the bands of each group into its first.
inline void merge_bands(const Map& map, const Bands& bands, float* kept) {
    const Index floats = 2 * map.depth();
    for (Index band = 0; band < bands.count; ++band) {
        const Index first = bands.group(band) * bands.per_group;
        if (band == first) continue;
        const float before = float((bands.first(band) - bands.first(first)) * map.width);
        const float more = float((bands.last(band) - bands.first(band)) * map.width), part = more / (more + before);
        float* means = kept + first * floats;
        const float* others = kept + band * floats;
        for (Index place = 0; place < map.depth(); place += LANES) {
            const Vector known = load(means + place), step = load(others + place) - known;
            float* distances = means + map.depth() + place;
            store(means + place, known + step * splat(part));
            store(
                distances,
                load(distances) + load(others + map.depth() + place) + step * step * splat(part * before)
            );
        }
    }
}

struct Moments {
    double mean, variance;
};

// Lanes have as many pixels each, so their means count equally.
inline Moments merge_lanes(const Map& map, const Bands& bands, const Lot& lot, const float* kept, Index channel) {
    const Index step = 2 * map.depth() * bands.per_group;
    double mean = 0.0, squares = 0.0, spread = 0.0;
    for (Index group = 0; group < lot.groups(); ++group) {
        const float* means = kept + group * step + channel * LANES;
        for (Index lane = 0; lane < LANES; ++lane) {
            if (!lot.has(group, lane)) continue;
            mean += double(means[lane]);
            squares += double(means[map.depth() + lane]);
        }
    }
    mean /= double(lot.parts());
    for (Index group = 0; group < lot.groups(); ++group) {
        const float* means = kept + group * step + channel * LANES;
        for (Index lane = 0; lane < LANES; ++lane) {
            if (!lot.has(group, lane)) continue;
            const double distance = double(means[lane]) - mean;
            spread += distance * distance;
        }
    }
    const double pixels = double(map.height * map.width);
    return {mean, (squares + pixels * spread) / (pixels * double(lot.parts()))};
}

inline void update_running(const NormParameters& of, Index channel, const Moments& found, double count, float momentum) {
    if (of.running_mean == nullptr) return;
    const float variance = float(found.variance * count / (count - 1.0));
    of.running_mean[channel] = momentum * float(found.mean) + (1.0f - momentum) * of.running_mean[channel];
    of.running_variance[channel] = momentum * variance + (1.0f - momentum) * of.running_variance[channel];
}

inline void fill_tables(
    const NormTables& tables, const NormParameters& of, Index channel, const Moments& known, float epsilon
) {
    const double deviation = 1.0 / std::sqrt(known.variance + double(epsilon));
    const double scale = deviation * (of.scale == nullptr ? 1.0 : double(of.scale[channel]));
    tables.mean[channel] = float(known.mean);
    tables.deviation[channel] = float(deviation);
    tables.scale[channel] = float(scale);
    tables.shift[channel] = float((of.shift == nullptr ? 0.0 : double(of.shift[channel])) - known.mean * scale);
}

// Fill the tables of a normalisation from its running statistics.
inline void recall_moments(const Map& map, const NormTables& tables, const NormParameters& of, float epsilon) {
    for (Index channel = 0; channel < map.channels; ++channel)
        fill_tables(
            tables, of, channel, {double(of.running_mean[channel]), double(of.running_variance[channel])}, epsilon
        );
}

// Fill the tables of a normalisation, and move its running statistics.
inline void finish_moments(
    const Map& map, const Lot& lot, float* kept, const NormTables& tables, const NormParameters& of, float epsilon,
    float momentum
) {
    const Bands bands(map, lot.groups());
    merge_bands(map, bands, kept);
    const double count = double(lot.parts() * map.height * map.width);
    for (Index channel = 0; channel < map.channels; ++channel) {
        const Moments found = merge_lanes(map, bands, lot, kept, channel);
        fill_tables(tables, of, channel, found, epsilon);
        update_running(of, channel, found, count, momentum);
    }
    if (of.batches != nullptr) ++*of.batches;
}

// --- rows of terms, each times a number per image: 0 for lanes beyond the last

template <bool ADD>
ALWAYS void write(float* to, Vector value) {
    store(to, ADD ? load(to) + value : value);
}

struct Strides {  // floats from pixel to pixel
    Index from, to;
};

template <bool ADD>
void add_as_it_is(const Map& map, const Strides& strides, const float* from, Vector lanes, float* to) {
    for (Index x = 0; x < map.width; ++x, from += strides.from, to += strides.to)
        for (Index place = 0; place < map.depth(); place += LANES) write<ADD>(to + place, load(from + place) * lanes);
}

template <bool ADD>
void add_normalized(
    const Map& map, const Strides& strides, const float* from, const NormTables& tables, Vector lanes, float* to
) {
    for (Index x = 0; x < map.width; ++x, from += strides.from, to += strides.to)
        for (Index channel = 0; channel < map.channels; ++channel) {
            const Vector value = load(from + channel * LANES) * splat(tables.scale[channel]);
            write<ADD>(to + channel * LANES, (value + splat(tables.shift[channel])) * lanes);
        }
}

inline Index inside_window(Index place, Index size) {  // pixels of a window of 3 along one direction
    return 1 + (place > 0) + (place + 1 < size);
}

// Room for a row of sums over three rows, with a column of zeros at both ends; pixels follow each other there.
inline float* join_rows(const Map& map, const float* image, Index number, float* room, bool divide) {
    const Index y = number % map.height, depth = map.depth();
    std::memset(room, 0, std::size_t(depth) * sizeof(float));
    float* joined = room + depth;
    std::memset(joined + map.width * depth, 0, std::size_t(depth) * sizeof(float));
    const Index first = y > 0 ? -1 : 0;
    for (Index step = first; step <= (y + 1 < map.height ? 1 : 0); ++step) {
        const float* row = map.row(image, number + step);
        const Vector factor = splat(divide ? 1.0f / float(inside_window(y + step, map.height)) : 1.0f);
        for (Index x = 0; x < map.width; ++x)
            for (Index place = 0; place < depth; place += LANES) {
                const Vector value = load(row + x * map.pixel() + place) * factor;
                float* sum = joined + x * depth + place;
                store(sum, step == first ? value : load(sum) + value);
            }
    }
    return joined;
}

template <bool ADD>
void add_pooled(const Map& map, Index to_pixel, const float* image, Index number, float* room, Vector lanes, float* to) {
    const float* joined = join_rows(map, image, number, room, false);
    const Index rows = inside_window(number % map.height, map.height), depth = map.depth();
    for (Index x = 0; x < map.width; ++x, joined += depth, to += to_pixel) {
        const Vector factor = splat(1.0f / float(rows * inside_window(x, map.width))) * lanes;
        for (Index place = 0; place < depth; place += LANES) {
            const float* middle = joined + place;
            write<ADD>(to + place, (load(middle - depth) + load(middle) + load(middle + depth)) * factor);
        }
    }
}

// given: the map of the gradient, of the shape of the pooled one.
template <bool ADD>
void add_pooled_backward(
    const Map& given, Index to_pixel, const float* gradient, Index number, float* room, Vector lanes, float* to
) {
    float* joined = join_rows(given, gradient, number, room, true);
    const Index depth = given.depth();
    for (Index x = 0; x < given.width; ++x) {
        const Vector factor = splat(1.0f / float(inside_window(x, given.width))) * lanes;
        for (Index place = x * depth; place < (x + 1) * depth; place += LANES)
            store(joined + place, load(joined + place) * factor);
    }
    for (Index x = 0; x < given.width; ++x, joined += depth, to += to_pixel)
        for (Index place = 0; place < depth; place += LANES) {
            const float* middle = joined + place;
            write<ADD>(to + place, load(middle - depth) + load(middle) + load(middle + depth));
        }
}

// --- backward of a normalisation

// Add up a row of the gradient, and of its products with the distances from the mean, for every channel and lane.
inline void add_row_products(
    const Map& map, Index gradient_pixel, const float* gradient, const float* values, const NormTables& tables,
    Vector lanes, float* kept
) {
    for (Index channel = 0; channel < map.channels; ++channel) {
        const Index start = channel * LANES;
        const Vector mean = splat(tables.mean[channel]);
        Vector sum{}, products{};
        for (Index x = 0; x < map.width; ++x) {
            const Vector given = load(gradient + x * gradient_pixel + start);
            sum += given;
            products += given * (load(values + x * map.pixel() + start) - mean);
        }
        store(kept + start, load(kept + start) + sum * lanes);
        store(kept + map.depth() + start, load(kept + map.depth() + start) + products * lanes);
    }
}

struct NormGradient {  // of a channel: dx = factor * (dy - mean - (x - its mean) * slope)
    float factor, mean, slope;
};

inline NormGradient finish_products(
    const Map& map, const Lot& lot, const Bands& bands, float* kept, const NormTables& tables, Index channel,
    float* by_scale, float* by_shift
) {
    double sum = 0.0, products = 0.0;
    for (Index band = 0; band < bands.count; ++band) {
        const float* of = kept + band * 2 * map.depth() + channel * LANES;
        sum += add_lanes(load(of));
        products += add_lanes(load(of + map.depth()));
    }
    const double deviation = double(tables.deviation[channel]);
    const double count = double(lot.parts() * map.height * map.width);
    if (by_scale != nullptr) by_scale[channel] = float(products * deviation);
    if (by_shift != nullptr) by_shift[channel] = float(sum);
    return {tables.scale[channel], float(sum / count), float(products * deviation * deviation / count)};
}

// Replace a row of values by its gradient. mask: 1 where a lane has an image; lanes: what the gradient is multiplied by.
inline void replace_by_gradient(
    const Map& map, Index gradient_pixel, const float* gradient, float* values, const NormTables& tables,
    const NormGradient* of, Vector mask, Vector lanes
) {
    for (Index x = 0; x < map.width; ++x, gradient += gradient_pixel, values += map.pixel())
        for (Index channel = 0; channel < map.channels; ++channel) {
            const Index place = channel * LANES;
            const Vector distance = load(values + place) - splat(tables.mean[channel]);
            const Vector rest = splat(of[channel].mean) + distance * splat(of[channel].slope);
            store(values + place, (load(gradient + place) * lanes - rest) * (splat(of[channel].factor) * mask));
        }
}

// --- 2x2 pools of stride 2, where the last window may hang over the end

inline Index in_pair(Index place, Index size) { return 2 * place + 1 < size ? 2 : 1; }

inline void halve_row(const Map& in, const Map& out, const float* image, Index number, float* to) {
    const Index group = number / out.height, y = number % out.height, rows = in_pair(y, in.height);
    for (Index x = 0; x < out.width; ++x) {
        const Index columns = in_pair(x, in.width);
        const Vector factor = splat(1.0f / float(rows * columns));
        for (Index place = 0; place < in.depth(); place += LANES) {
            Vector sum{};
            for (Index row = 0; row < rows; ++row)
                for (Index column = 0; column < columns; ++column)
                    sum += load(in.row(image, group * in.height + 2 * y + row) + (2 * x + column) * in.pixel() + place);
            store(to + x * out.pixel() + place, sum * factor);
        }
    }
}

template <bool ADD>
void halve_backward_row(const Map& in, const Map& out, const float* gradient, Index number, float* to) {
    const Index group = number / in.height, y = number % in.height, rows = in_pair(y / 2, in.height);
    const float* from = out.row(gradient, group * out.height + y / 2);
    for (Index x = 0; x < in.width; ++x) {
        const Vector factor = splat(1.0f / float(rows * in_pair(x / 2, in.width)));
        for (Index place = 0; place < in.depth(); place += LANES)
            write<ADD>(to + x * in.pixel() + place, load(from + x / 2 * out.pixel() + place) * factor);
    }
}

}  // namespace
