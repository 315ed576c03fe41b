// Feature maps of a network whose vectors run over images: every lane of a vector is another image.
//
// A map is [groups of LANES images][height][width + 2][channels][LANES]. All channels and pixels then run the same loops
// at full width, few channels as well as many. A column of zeros at both ends of a row is the padding of convolutions.
// Lanes beyond the last image are zero in every map and every gradient. Some channels of a map are a map, too: its
// pixels then lie further apart.
//
// Where a batch has few images, a vector holds columns of each side by side, `segments` of them: a lane is a part of an
// image. Convolutions and pools then read beyond the ends of a row what lies in the neighbouring lanes.

#pragma once

#include "threads.hpp"

namespace {

struct Map {
    Index offset;    // of its values, in vectors of the workspace
    Index gradient;  // of its gradient, the same way
    Index channels, height, width;
    Index wide;  // channels from one pixel to the next: more than its own where it is a part of another map

    Index pixel() const { return wide * LANES; }      // floats from one pixel to the next
    Index depth() const { return channels * LANES; }  // floats of one pixel
    Index pitch() const { return (width + 2) * pixel(); }
    Index rows(Index groups) const { return groups * height; }

    // The first pixel of a row; rows are numbered over all groups.
    template <class Float>
    Float* row(Float* start, Index number) const {
        return start + number * pitch() + pixel();
    }
};

struct Lot {  // the images of a batch
    Index images, segments;

    Index per_group() const { return LANES / segments; }  // images
    Index groups() const { return (images + per_group() - 1) / per_group(); }
    Index in_group(Index group) const {
        const Index left = images - group * per_group();
        return left < per_group() ? left : per_group();
    }
    Index parts() const { return images * segments; }
    Index image(Index group, Index lane) const { return group * per_group() + lane % per_group(); }
    Index segment(Index lane) const { return lane / per_group(); }
    bool has(Index group, Index lane) const { return lane % per_group() < in_group(group); }
    Vector mask(Index group) const {  // 1 where a lane has an image
        float lanes[LANES];
        for (Index lane = 0; lane < LANES; ++lane) lanes[lane] = has(group, lane) ? 1.0f : 0.0f;
        return load(lanes);
    }
    // Of the first pixel of a row of a lane in a tensor [images][height][width].
    Index place(const Map& map, Index group, Index lane, Index y) const {
        return ((image(group, lane) * map.height + y) * segments + segment(lane)) * map.width;
    }
    Vector spread(const float* numbers, Index group) const {  // a number for every image
        float lanes[LANES];
        for (Index lane = 0; lane < LANES; ++lane) lanes[lane] = has(group, lane) ? numbers[image(group, lane)] : 0.0f;
        return load(lanes);
    }
    // What lies left and right of a segment: the values of the one before and after it, or what is beyond the image.
    Vector from_left(Vector value, float beyond = 0.0f) const { return neighbour(value, -per_group(), beyond); }
    Vector from_right(Vector value, float beyond = 0.0f) const { return neighbour(value, per_group(), beyond); }

  private:
    static Vector neighbour(Vector value, Index distance, float beyond) {
        float lanes[3 * LANES];
        store(lanes, splat(beyond));
        store(lanes + LANES, value);
        store(lanes + 2 * LANES, splat(beyond));
        return load(lanes + LANES + distance);
    }
};

// Parts of the rows of a map. They depend on the shape alone: sums have the same order for any number of threads.
struct Bands {
    Index height, per_group, count;

    Bands(const Map& map, Index groups)
        : height(map.height), per_group(map.height < MOST ? map.height : MOST), count(groups * per_group) {}

    Index first(Index band) const { return band / per_group * height + band % per_group * height / per_group; }
    Index last(Index band) const { return band / per_group * height + (band % per_group + 1) * height / per_group; }
    Index group(Index band) const { return band / per_group; }

    static constexpr Index MOST = 4;
};

// Keeps NaN, as torch does.
ALWAYS Vector rectify(Vector value) {
#if defined(__AVX512F__)
    return Vector(_mm512_max_ps(_mm512_setzero_ps(), __m512(value)));
#elif defined(__AVX2__)
    return Vector(_mm256_max_ps(_mm256_setzero_ps(), __m256(value)));
#else
    return value < 0.0f ? Vector{} : value;
#endif
}

ALWAYS Vector where_positive(Vector sign, Vector value) { return sign <= 0.0f ? Vector{} : value; }

ALWAYS float add_lanes(Vector value) {
#if defined(__AVX512F__)
    return _mm512_reduce_add_ps(__m512(value));
#else
    float lanes[LANES];
    store(lanes, value);
    for (Index half = LANES / 2; half > 0; half /= 2)
        for (Index lane = 0; lane < half; ++lane) lanes[lane] += lanes[lane + half];
    return lanes[0];
#endif
}

inline double add_lanes_exactly(const float* lanes) {
    double sum = 0.0;
    for (Index lane = 0; lane < LANES; ++lane) sum += double(lanes[lane]);
    return sum;
}

// Call body(first row, last row + 1) of all rows, in parallel.
template <class Body>
inline void each_row(const Map& map, Index groups, Index threads, Body body) {
    const Index rows = map.rows(groups);
    share(rows, thread_count(threads, rows, rows * map.pitch()), [&](Index first, Index last, int) {
        for (Index row = first; row < last; ++row) body(row);
    });
}

// --- from and to tensors

struct Pixels {  // a tensor [images][channels][height][width] in any layout
    const float* data;
    const Index* strides;
};

inline void read_images(const Pixels& from, const Lot& lot, const Map& map, float* to) {
    for (Index number = 0; number < map.rows(lot.groups()); ++number) {
        const Index group = number / map.height, y = number % map.height;
        float* row = map.row(to, number);
        for (Index lane = 0; lane < LANES; ++lane) {
            if (!lot.has(group, lane)) continue;
            const float* image = from.data + lot.image(group, lane) * from.strides[0] + y * from.strides[2];
            const Index segment = lot.segment(lane), start = segment * map.width;
            for (Index x = segment > 0 ? -1 : 0; x < map.width + (segment + 1 < lot.segments ? 1 : 0); ++x)
                for (Index channel = 0; channel < map.channels; ++channel)
                    row[x * map.pixel() + channel * LANES + lane] =
                        image[(start + x) * from.strides[3] + channel * from.strides[1]];
        }
    }
}

// out[image][channel] = the mean of all pixels, rectified or not.
template <bool RECTIFY>
inline void average(const float* from, const Lot& lot, const Map& map, float* out) {
    const Vector share_of_one = splat(1.0f / float(map.height * map.width * lot.segments));
    for (Index group = 0; group < lot.groups(); ++group)
        for (Index channel = 0; channel < map.channels; ++channel) {
            Vector sum{};
            for (Index y = 0; y < map.height; ++y) {
                const float* row = map.row(from, group * map.height + y) + channel * LANES;
                for (Index x = 0; x < map.width; ++x) {
                    const Vector value = load(row + x * map.pixel());
                    sum += RECTIFY ? rectify(value) : value;
                }
            }
            float lanes[LANES];
            store(lanes, sum * share_of_one);
            for (Index lane = lot.per_group(); lane < LANES; ++lane) lanes[lane % lot.per_group()] += lanes[lane];
            for (Index lane = 0; lane < lot.in_group(group); ++lane)
                out[lot.image(group, lane) * map.channels + channel] = lanes[lane];
        }
}

template <bool RECTIFY>
inline void average_backward(
    const float* by_out, const float* values, const Lot& lot, const Map& map, float* gradient
) {
    const Vector share_of_one = splat(1.0f / float(map.height * map.width * lot.segments));
    for (Index group = 0; group < lot.groups(); ++group)
        for (Index channel = 0; channel < map.channels; ++channel) {
            float lanes[LANES] = {};
            for (Index lane = 0; lane < LANES; ++lane)
                if (lot.has(group, lane)) lanes[lane] = by_out[lot.image(group, lane) * map.channels + channel];
            const Vector given = load(lanes) * share_of_one;
            for (Index y = 0; y < map.height; ++y) {
                const Index row = group * map.height + y;
                const float* value = map.row(values, row) + channel * LANES;
                float* to = map.row(gradient, row) + channel * LANES;
                for (Index x = 0; x < map.width; ++x) {
                    const Index place = x * map.pixel();
                    store(to + place, RECTIFY ? where_positive(load(value + place), given) : given);
                }
            }
        }
}

// Write a map to a tensor [images][height][width][channels].
inline void write_pixels(const float* from, const Lot& lot, const Map& map, float* to) {
    for (Index number = 0; number < map.rows(lot.groups()); ++number) {
        const Index group = number / map.height, y = number % map.height;
        const float* row = map.row(from, number);
        for (Index lane = 0; lane < LANES; ++lane) {
            if (!lot.has(group, lane)) continue;
            float* image = to + lot.place(map, group, lane, y) * map.channels;
            for (Index x = 0; x < map.width; ++x)
                for (Index channel = 0; channel < map.channels; ++channel)
                    *image++ = row[x * map.pixel() + channel * LANES + lane];
        }
    }
}

// Add such a tensor to a map, or replace the map by it; null stands for zeros.
inline void read_pixels(const float* from, const Lot& lot, const Map& map, float* to, bool add) {
    if (from == nullptr && add) return;
    for (Index number = 0; number < map.rows(lot.groups()); ++number) {
        const Index group = number / map.height, y = number % map.height;
        float* row = map.row(to, number);
        for (Index x = 0; x < map.width; ++x)
            for (Index channel = 0; channel < map.channels; ++channel) {
                float lanes[LANES] = {};
                for (Index lane = 0; lane < LANES; ++lane)
                    if (from != nullptr && lot.has(group, lane))
                        lanes[lane] = from[(lot.place(map, group, lane, y) + x) * map.channels + channel];
                float* place = row + x * map.pixel() + channel * LANES;
                store(place, add ? load(place) + load(lanes) : load(lanes));
            }
    }
}

}  // namespace
